"""An NVIDIA GPU through its driver: memory, streams, a plan as one graph, and a library of products."""
