"""From a Program to a Source: a row for each statement and operation, in LLVM IR, CUDA C, OpenCL C or C."""
