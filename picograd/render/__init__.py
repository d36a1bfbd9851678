"""From a Program to a Source: LLVM IR for processors, CUDA C for GPUs."""
