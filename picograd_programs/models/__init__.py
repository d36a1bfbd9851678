"""Networks and their trainings, one file per model, for text, names, pictures and tables."""

from picograd_programs.models.gpt import GPT, GPTConfig, generate, optimizer_of
from picograd_programs.models.pictures import PixelCNN, PixelMLP

__all__ = ["GPT", "GPTConfig", "PixelCNN", "PixelMLP", "generate", "optimizer_of"]
