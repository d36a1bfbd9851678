"""From a Program to a Source: a row for each statement and operation, for LLVM and for CUDA C."""
