"""From an Op graph to a Schedule: what is fused into which kernel, in which order, and where results lie."""
