"""Plans on any device: what a schedule launches, in order, and where kernels have their scratch memory."""
