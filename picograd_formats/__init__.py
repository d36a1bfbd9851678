"""Files of tensors in other formats: PyTorch's .pt and .pth, NumPy's .npy and .npz, safetensors, GGUF."""
