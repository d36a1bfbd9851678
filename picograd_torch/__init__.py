"""PyTorch beside picograd: `import torch` for programs that were written for it, its settings, hints for what is absent."""
