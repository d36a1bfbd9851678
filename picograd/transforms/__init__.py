"""Functions of functions: jit, which captures one as a plan, and grad, jvp, vmap and their relatives."""
