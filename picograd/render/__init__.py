"""Text of Programs: the writers of LLVM IR and of languages like C, to which a device adds its dialect."""
