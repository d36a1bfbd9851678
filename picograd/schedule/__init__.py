"""Op graph to Schedule: fusion into kernels, their order, and the places of results."""
