"""Text of Programs: the writers of LLVM IR and of languages like C, of which a device has a dialect."""
