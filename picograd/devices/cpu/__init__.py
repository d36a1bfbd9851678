"""The CPU: memory from a pool, a plan as words of memory, machine code that walks them, and threads that help."""
