"""Networks that the trainings fit and users read: of text, of names, of pictures."""

from picograd_programs.models.gpt import GPT, GPTConfig, generate, optimizer_of
from picograd_programs.models.names import BengioModel, CharacterLSTM
from picograd_programs.models.pictures import PixelCNN, PixelMLP

__all__ = ["BengioModel", "CharacterLSTM", "GPT", "GPTConfig", "PixelCNN", "PixelMLP", "generate", "optimizer_of"]
