"""From a Source to a Binary, by LLVM, NVRTC or the C++ compiler of the host."""
