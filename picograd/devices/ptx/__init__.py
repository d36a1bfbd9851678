"""An NVIDIA GPU with nothing but its driver: PTX by LLVM; memory and plans are those of cuda/."""
