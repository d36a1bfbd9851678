"""Functions of numbers and signals by SciPy's subjects: special functions, Fourier transforms, windows."""
