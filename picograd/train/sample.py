"""`picograd sample gpt`: text from a trained model.

In:    a checkpoint; `SampleGptConfig`
Out:   new text
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from picograd.data.text import Vocabulary
from picograd.errors import DataError
from picograd.models.gpt import GPT, GPTConfig, generate
from picograd.tensor.generator import Generator
from picograd.tensor.tensor import Tensor
from picograd.train.checkpoint import load_checkpoint
from picograd.train.loop import check_counts
from picograd.train.state import load_weights


@dataclass(frozen=True)
class SampleGptConfig:
    """Settings of `picograd sample gpt`."""

    checkpoint: Path = Path("runs/gpt.safetensors")  # what `picograd train gpt` wrote
    prompt: str = ""  # text to continue; a new line if it is empty
    length: int = 500  # characters to draw
    temperature: float = 0.8  # below 1 prefers what is likely; 0 always takes the likeliest
    top_k: int = 200  # draw only from so many of the likeliest characters
    num: int = 1  # texts
    seed: int = 0  # seed of the first text; each further text has the next number


def sample_gpt(config: SampleGptConfig) -> int:
    """Prints new text; several texts have a line of dashes between them. Returns 0.

    Raises:
      ArgumentError: a setting is out of its range.
      DataError: the checkpoint is not there, corrupt, or of another training; or the prompt has a character that its
                 text did not have.
    """
    check_counts(config)
    model, vocabulary = load_gpt(config.checkpoint)
    prompt = config.prompt or default_prompt(vocabulary)
    for number in range(config.num):
        if number:
            print("-" * 20)
        seed = config.seed + number
        print(continued(model, vocabulary, prompt, config.length, config.temperature, config.top_k, seed), flush=True)
    return 0


def load_gpt(path: Path) -> tuple[GPT, Vocabulary]:
    """Returns the model in a checkpoint, and the characters it knows.

    Raises:
      DataError: the checkpoint is not there, corrupt, or of another training.
    """
    saved = load_checkpoint(path, "gpt", "sample {kind} --checkpoint {path}")
    vocabulary = Vocabulary(saved.config["characters"])
    shape = {name: saved.config[name] for name in ("block", "layers", "heads", "width")}
    model = GPT(GPTConfig(len(vocabulary), **shape, bias=False))
    load_weights(path, saved, model)
    return model, vocabulary


def continued(
    model: GPT,
    vocabulary: Vocabulary,
    prompt: str,
    length: int,
    temperature: float = 0.8,
    top_k: int = 200,
    seed: int = 0,
) -> str:
    """Returns the prompt and `length` characters drawn after it.

    Raises:
      DataError: the prompt has a character that is not in the vocabulary.
    """
    try:
        tokens_T = vocabulary.encode(prompt)
    except DataError as error:
        raise DataError(error.fact.replace("encode", "--prompt", 1)) from None
    text_BT = generate(model, Tensor(tokens_T[None]), length, temperature, top_k, Generator(seed))
    return vocabulary.decode(text_BT.tolist()[0])


def default_prompt(vocabulary: Vocabulary) -> str:
    """Returns a new line, or the first character where the text had none."""
    return "\n" if "\n" in vocabulary.characters else vocabulary.characters[0]
