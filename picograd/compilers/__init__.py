"""From a Source to a Binary: by LLVM, NVRTC, an OpenCL driver, or the C and C++ compilers of this machine."""
