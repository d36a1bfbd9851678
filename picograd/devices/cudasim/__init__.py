"""CUDA C without a GPU: threads as fibers of a shared library, which stops a kernel at the first rule it breaks."""
