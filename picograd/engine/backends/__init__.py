"""How each device is put together from a renderer, a compiler and a runtime."""
