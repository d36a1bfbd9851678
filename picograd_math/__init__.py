"""Functions of numbers and signals by SciPy's subjects: linear algebra, special functions, Fourier transforms, windows."""
