"""PyTorch's world for picograd: `import torch` for existing programs, PyTorch's settings, hints for missing names."""
