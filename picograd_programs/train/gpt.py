"""`picograd train gpt`: a small GPT on the characters of a text, from data to new text; `picograd sample gpt`.

In:    a text; `GptConfig`; a checkpoint; `SampleGptConfig`
Out:   a checkpoint, the validation loss, drawn text
Source: Karpathy, nanoGPT, config/train_shakespeare_char.py and its settings for a CPU: the defaults here.

Letters: N characters, B batch, T positions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from picograd.errors import DataError
from picograd.nn.utils import clip_grad_norm_
from picograd.optim.adam import AdamW
from picograd.tensor.generator import Generator, manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.fetch import sha256_of
from picograd_programs.data.text import Vocabulary, Windows, load_text, random_windows, spaced_windows, split
from picograd_programs.models.gpt import GPT, GPTConfig, generate, optimizer_of
from picograd_programs.train.checkpoint import checkpoint_of, load_checkpoint, load_weights, resume, save_checkpoint
from picograd_programs.train.loop import (
    TrainingLog,
    check_counts,
    check_files,
    cosine_with_warmup,
    report_end,
    run_steps,
    seed_of_step,
)


# ---- text from a trained model ----
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


# ---- training ----
LAST_EVALUATION = 10  # times as many batches after the last step: about all characters of tiny Shakespeare's tenth


@dataclass(frozen=True)
class GptConfig:
    """Settings of `picograd train gpt`; the defaults are nanoGPT's for a CPU."""

    text: str = "python"  # "python" (source of the standard library), "shakespeare" (tiny Shakespeare), or a file
    layers: int = 4  # blocks of the model
    heads: int = 4  # attention heads in each block
    width: int = 128  # features of a character
    block: int = 64  # characters the model sees
    dropout: float = 0.0  # probability of dropout in training
    batch: int = 12  # windows in a step
    steps: int = 2000  # batches
    lr: float = 1e-3  # highest learning rate; falls along a cosine to a tenth of it
    warmup: int = 100  # steps in which the learning rate rises
    weight_decay: float = 0.1  # weight decay of AdamW, for matrices
    beta2: float = 0.99  # second beta of AdamW
    clip: float = 1.0  # largest norm of all gradients together; 0: unlimited
    eval_every: int = 250  # steps between two validations; each saves a checkpoint
    eval_batches: int = 20  # batches of a validation; ten times as many after the last step
    sample: int = 500  # characters to draw at the end
    seed: int = 0  # seed of the start weights, the batches and the drawn text
    out: Path = Path("runs/gpt.safetensors")  # the checkpoint
    resume: Path | None = None  # a checkpoint to go on from
    log: Path | None = None  # a file for the figures: a JSON object a line, for curves


def train_gpt(config: GptConfig) -> int:
    """Trains, saves checkpoints, validates, and prints new text.

    Returns:   0, or 130 when Ctrl-C stopped the training (as a shell reports SIGINT)

    Raises:
      ArgumentError: a setting is out of its range.
      DataError: the text is no UTF-8 or too short; the checkpoint to resume from is corrupt or of another run; or the
                 checkpoint cannot be written.
    """
    check_counts(config)
    check_files(config.out, config.log, config.resume)
    text = load_text(config.text)
    vocabulary = Vocabulary.of(text)
    train_N, validation_N = split(vocabulary.encode(text), config.block)
    manual_seed(config.seed)
    shape = (config.block, config.layers, config.heads, config.width)
    model = GPT(GPTConfig(len(vocabulary), *shape, config.dropout, bias=False))
    optimizer = optimizer_of(model, config.lr, config.weight_decay, (0.9, config.beta2))
    num_parameters = sum(p.numel() for p in model.parameters())
    print(
        f"gpt: {len(text):,} characters of {config.text}, {len(vocabulary)} different; {num_parameters:,} parameters",
        flush=True,
    )
    facts = {"characters": vocabulary.characters, "text_digest": sha256_of(text.encode())}
    started = time.perf_counter()
    done = train(config, (train_N, validation_N), model, optimizer, facts)
    if not report_end("gpt", config, done, config.steps, time.perf_counter() - started):
        return 130
    num = LAST_EVALUATION * config.eval_batches * config.batch
    print(f"validation loss: {Validation(model, validation_N, num, config).loss().item():.4f}", flush=True)
    print(continued(model, vocabulary, default_prompt(vocabulary), config.sample, seed=config.seed))
    return 0


def train(
    config: GptConfig,
    parts: tuple[NDArray[np.int32], NDArray[np.int32]],
    model: GPT,
    optimizer: AdamW,
    facts: dict[str, str],
) -> int:
    """Trains a model, from the start or from a checkpoint, and returns the steps done.

    Args:
      parts:  characters to train on, and to validate with
      facts:  what a checkpoint says of the text
    """
    train_N, validation_N = parts
    first = resume("gpt", config, model, optimizer, same=("block", "heads"), **facts)
    parameters = list(model.parameters())

    @jit
    def step(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(tokens_BT, targets_BT)[1]
        loss.backward()
        if config.clip:
            clip_grad_norm_(parameters, config.clip)
        optimizer.step()
        return loss

    validation = Validation(model, validation_N, config.eval_batches * config.batch, config)

    def make_step(number: int) -> dict[str, Tensor]:
        if number % config.eval_every == 0 or number == first:
            validation.latest, validation.step = validation.loss(), number
        optimizer.lr = cosine_with_warmup(number, config.lr, config.warmup, config.steps)
        if config.dropout:
            manual_seed(seed_of_step(config.seed, number))
        batch = random_windows(train_N, config.seed, number, config.batch, config.block)
        return {"loss": step(*tensors_of(batch)), f"validation at {validation.step}": validation.latest}

    def save(steps_done: int) -> None:
        save_checkpoint(config.out, checkpoint_of("gpt", steps_done, config, model, optimizer, **facts))

    log = TrainingLog("gpt", "characters", first, config.steps, file=config.log)
    return run_steps(log, config.batch * config.block, make_step, save, save_every=config.eval_every)


class Validation:
    """The loss on windows at even distances, the same each time.

    latest:  the loss of the last validation, nats per character
    step:    steps done before it
    """

    def __init__(self, model: GPT, tokens_N: NDArray[np.int32], num: int, config: GptConfig):
        self.model = model
        windows = spaced_windows(tokens_N, num, config.block)
        self.batches = [
            tensors_of(Windows(*(part[i : i + config.batch] for part in windows))) for i in range(0, num, config.batch)
        ]
        self.latest, self.step = Tensor(float("nan")), 0
        self.batch_loss = jit(self._batch_loss)

    def _batch_loss(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        loss: Tensor = self.model(tokens_BT, targets_BT)[1]
        return loss

    def loss(self) -> Tensor:
        """Returns the mean loss now, without dropout: ()."""
        self.model.eval()
        try:
            with no_grad():
                losses = [self.batch_loss(*batch) for batch in self.batches]
                return Tensor.stack(losses).mean().realize()
        finally:
            self.model.train()


def tensors_of(windows: Windows) -> tuple[Tensor, Tensor]:
    """Returns tokens and targets as tensors."""
    return Tensor(windows.tokens), Tensor(windows.targets)
