"""An NVIDIA GPU: CUDA C by NVRTC; memory, streams, a plan as one graph, and a library of products by its driver."""
