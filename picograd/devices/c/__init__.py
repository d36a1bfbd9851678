"""This processor by readable C: plain loops over scalars, compiled by the C compiler of this machine."""
