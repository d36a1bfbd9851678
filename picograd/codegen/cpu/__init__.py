"""Emitters for a CPU: vectors, panels that are packed, threads that take pieces; none knows those of a GPU."""
