"""Networks and their trainings, a file a model: of text, of names, of pictures, of tables."""

from picograd_programs.models.gpt import GPT, GPTConfig, generate, optimizer_of
from picograd_programs.models.pictures import PixelCNN, PixelMLP

__all__ = ["GPT", "GPTConfig", "PixelCNN", "PixelMLP", "generate", "optimizer_of"]
