"""Training: a loop around a readable step, and callbacks between the steps."""

from picograd_programs.train.callbacks import Checkpoints, Every, Log, Progress, TensorBoard
from picograd_programs.train.measures import bits_per_byte, perplexity
from picograd_programs.train.trainer import Callback, Trainer, cosine, linear

__all__ = [
    "Callback", "Checkpoints", "Every", "Log", "Progress", "TensorBoard", "Trainer", "bits_per_byte", "cosine", "linear",
    "perplexity",
]  # fmt: skip
