"""Files of tensors in the formats of others: PyTorch's .pt and .pth, NumPy's .npy and .npz, safetensors."""
