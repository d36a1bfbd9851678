"""Emitters for a GPU: grids of blocks, shared memory, warps; none knows those of a CPU."""
