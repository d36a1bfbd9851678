"""From a Source to a Binary: by LLVM in this process, by NVRTC, or by the C++ compiler of this machine."""
