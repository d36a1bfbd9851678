"""Functions of functions: jit, derivatives, vmap. Each traces a function of Tensors and works on its graph."""
