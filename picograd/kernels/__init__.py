"""Headers of generated code: primitives of CUDA C, with a body for GPUs and one for the simulator, and those of C."""
