"""What CUDA code is written with: a header of primitives, each with one body for GPUs and one for the simulator."""
