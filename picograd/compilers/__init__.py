"""Machine code of text: LLVM in this process, and libraries by the compilers of this machine; for all devices."""
