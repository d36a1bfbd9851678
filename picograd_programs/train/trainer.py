"""The loop of a training: steps, and callbacks between them.

`Trainer.step` is a whole step, in a dozen lines; `Trainer.fit` runs one after the other. Everything else, from the bar to
the checkpoint, is a callback (callbacks.py).

A step's draws (dropout, augmentation) have their own seed, and the learning rate and the batch depend only on the step's
number. So a stopped and resumed run equals an unbroken one, bit for bit.
"""

from __future__ import annotations

import inspect
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from picograd.autodiff.gradient import written_out
from picograd.dtype import DType, float16
from picograd.errors import AnomalyError, ArgumentError, ArgumentTypeError, WorkerError, warn_user
from picograd.ir.op import toposort
from picograd.ir.shape import flops_of
from picograd.nn.module import Module
from picograd.nn.utils import clip_grad_norm_
from picograd.optim.optimizer import Optimizer
from picograd.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from picograd.tensor.anomaly import detect_anomaly
from picograd.tensor.core import realize
from picograd.tensor.generator import manual_seed
from picograd.tensor.modes import autocast
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_training.scaler import GradScaler

Batch = Any  # a tensor or array, or a tuple, list or dict of them
Batches = Callable[[int], Batch] | Iterable[Batch]
Figures = dict[str, Tensor]
Loss = Callable[..., Tensor | Mapping[str, Tensor]]

SHOW_EVERY = 20  # steps; reading a figure waits for the device
STEP, EPOCH, BATCH = 1, 2, 3  # kinds of draws, each with its own seeds
BACKWARD = 2  # operations of a backward pass relative to its forward pass: two products for one


# ---- learning rates and seeds of steps ----
def cosine(steps: int, warmup: int = 0, least: float = 0.1) -> Callable[[int], float]:
    """Returns a schedule of a linear warm-up and half a cosine.

    (step + 1) / (warmup + 1) before `warmup`; then least + (1 - least) (1 + cos(pi done)) / 2, done from 0 to 1

    Args:
      steps:   number of steps of the training
      warmup:  number of warm-up steps
      least:   final factor, relative to the highest learning rate

    Returns:   step, counted from 0 -> factor of the learning rate

    Source:    Loshchilov, Hutter 2016, arXiv:1608.03983, eq. 5, one period; the warm-up and the tenth as in nanoGPT.

    >>> [round(cosine(10, warmup=2)(step), 3) for step in (0, 1, 2, 6, 10)]
    [0.333, 0.667, 1.0, 0.55, 0.1]
    """

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * done))

    return factor


def linear(steps: int) -> Callable[[int], float]:
    """Returns a schedule that falls linearly from 1 to 0.

    Args:
      steps:  number of steps of the training

    >>> [linear(4)(step) for step in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    return lambda step: 1 - step / steps


def seed_from(*numbers: int) -> int:
    """Returns a seed that depends only on some numbers, such as a run's seed and a step.

    >>> seed_from(0, 1) == seed_from(0, 1) != seed_from(1, 0)
    True
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


# ---- the trainer ----
class NotFinite(Exception):
    """A NaN or infinite loss; `fit` catches it."""


class Callback:
    """An observer of a training's steps; its methods do nothing by default.

    >>> class Count(train.Callback):
    ...     steps = 0
    ...     def after_step(self, trainer, parts):
    ...         self.steps += 1
    """

    def begin(self, trainer: Trainer) -> None:
        """Called before the first step."""

    def after_step(self, trainer: Trainer, parts: Sequence[Batch]) -> None:
        """Called after a step, which `trainer.done` already counts; `parts` are its batches."""

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Called with new figures, such as the loss or an evaluation."""

    def told(self, trainer: Trainer, text: str) -> None:
        """Called with a text during the training, such as a sample."""

    def save(self, trainer: Trainer) -> None:
        """Called to save the state, when the training ends or is stopped."""

    def restore(self, trainer: Trainer) -> bool:
        """Restores the newest saved state, and returns whether there was one."""
        return False

    def end(self, trainer: Trainer) -> None:
        """Called after the last step, however the training ends."""


class Trainer:
    """Trains a model: runs steps, and calls callbacks.

    Args:
      model:       model, which is in training mode between evaluations
      optimizer:   optimizer of its parameters; or several, each of some of them
      loss:        (model, *batch) -> the loss (), or figures by name, including "loss"; a batch that is a dict is passed
      by name
      schedule:    step, counted from 0 -> factor of each group's learning rate
      clip:        limit of the norm of all gradients
      accumulate:  batches per step, with averaged gradients
      precision:   dtype of autocast in the loss: bfloat16; or float16, with a scaled loss
      scaler:      scaler of the loss; None: GradScaler(), which is enabled for float16 only
      ema:         decay of the weights' moving average, such as 0.999
      seed:        seed of draws within steps, and of the order of a DataLoader without a generator
      jit:         runs the step as one plan; False: eagerly

    State: done, the number of steps so far; beside, the seconds spent in callbacks; latest, the latest figures; averaged,
    the model of averaged weights or None.

    Raises:
      ArgumentError: clip is not above 0, accumulate is below 1, or ema is outside (0, 1).

    >>> model = nn.Linear(1, 1)
    >>> trainer = Trainer(model, optim.SGD(model.parameters(), lr=0.1), lambda model, x, y: ((model(x) - y) ** 2).mean())
    >>> x = Tensor([[1.0], [2.0]])
    >>> trainer.fit([(x, 3 * x)], steps=300)
    300
    >>> round(model.weight.item(), 1)
    3.0
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer | Sequence[Optimizer],
        loss: Loss,
        *,
        schedule: Callable[[int], float] | None = None,
        clip: float | None = None,
        accumulate: int = 1,
        precision: DType | None = None,
        scaler: GradScaler | None = None,
        ema: float | None = None,
        seed: int = 0,
        jit: bool = True,
    ):
        if clip is not None and not clip > 0:
            raise ArgumentError(f"Trainer: clip must be above 0, got {clip}.")
        if accumulate < 1:
            raise ArgumentError(f"Trainer: accumulate must be at least 1, got {accumulate}.")
        if ema is not None and not 0 < ema < 1:
            raise ArgumentError(f"Trainer: ema must be between 0 and 1, got {ema}.")
        self.model, self.loss = model, loss
        self.optimizers = (optimizer,) if isinstance(optimizer, Optimizer) else tuple(optimizer)
        self.schedule, self.clip, self.accumulate, self.precision, self.seed = schedule, clip, accumulate, precision, seed
        self.groups = [group for each in self.optimizers for group in each.param_groups]
        self.parameters = [parameter for group in self.groups for parameter in group["params"]]
        self.scaler = scaler or GradScaler(enabled=precision is float16)
        self.averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(ema)) if ema else None
        self.rates = [float(group["lr"]) for group in self.groups]
        self.done, self.steps, self.should_stop, self.beside = 0, 0, False, 0.0
        self.latest: dict[str, float] = {}
        self.unread: list[Tensor] = []  # losses of the latest steps, which have not been read yet
        self.callbacks: list[Callback] = []
        self.jit, self._run = jit, self.step

    # ---- a step ----
    def step(self, *batches: Batch) -> Figures:
        """Runs a step: gradients of the loss, averaged over the batches, then the optimizer's update.

        With a scaled loss, a step whose gradients overflow changes only the scale.

        Returns:   figures of the last batch, and "norm", the gradients' norm, if it is clipped
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        for batch in batches:
            figures = self.figures_of(batch)
            self.scaler.scale(figures["loss"] / len(batches)).backward()
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        if self.clip is not None:
            figures["norm"] = clip_grad_norm_(self.parameters, self.clip)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)
        return {name: value.detach() for name, value in figures.items()}

    def figures_of(self, batch: Batch) -> Figures:
        """Returns the loss of a batch, and other results of the loss function, by name.

        Raises:
          ArgumentTypeError: the parameters of the loss function are not the model and the parts of a batch, or its result
          is neither a tensor nor figures with a loss.
        """
        named = batch if isinstance(batch, Mapping) else {}
        parts = () if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else (batch,)
        with self._precision():
            try:
                found = self.loss(self.model, *parts, **named)
            except TypeError:
                self._check_call(parts, named)
                raise
        figures = {"loss": found} if isinstance(found, Tensor) else found
        if not isinstance(figures, Mapping) or not isinstance(figures.get("loss"), Tensor):
            kind = f"a {type(found).__name__}" + (f" of {', '.join(map(str, found))}" if isinstance(found, Mapping) else "")
            raise ArgumentTypeError(f'Trainer: loss must return a tensor, or a dict with "loss", got {kind}.')
        return dict(figures)

    def _check_call(self, parts: Sequence[Batch], named: Mapping[str, Batch]) -> None:
        with suppress(ValueError):  # a C function without a signature
            signature = inspect.signature(self.loss)
            try:
                signature.bind(self.model, *parts, **named)
            except TypeError as error:
                given = ", ".join(["the model", *([f"{len(parts)} parts of a batch"] if parts else []), *map(str, named)])
                raise ArgumentTypeError(
                    f"Trainer: loss takes {signature}, and is called with {given}: {error}.",
                    hint="loss(model, inputs, targets) for batches of (inputs, targets); a dict gives arguments by name",
                ) from None

    def _precision(self) -> AbstractContextManager[Any]:
        device = self.parameters[0].device if self.parameters else "cpu"
        return nullcontext() if self.precision is None else autocast(str(device), dtype=self.precision)

    # ---- steps ----
    def fit(self, batches: Batches, steps: int, callbacks: Sequence[Callback] = ()) -> int:
        """Runs the steps `done` .. `steps` - 1.

        Ctrl-C lets the current step finish, so that no partial update is ever saved; a second one stops immediately. A
        signal to end the process (SIGTERM, SIGHUP) does the same and then ends it, unless the program has its own handler.

        Args:
          batches:    step, counted from 0 -> batch; or a DataLoader or other iterable, which restarts at its end
          steps:      number of steps of the whole training, including earlier ones
          callbacks:  called at the beginning, at each step and at the end, in this order: `Progress()` shows a bar

        Returns:      steps done: less than `steps` if Ctrl-C or a callback stopped the training

        Raises:
          ArgumentError: an iterable has no batches.
          ArgumentTypeError: batches are neither a function nor an iterable, or the loss does not fit the batches.
          AnomalyError: the loss is not finite. The error names the step, and with checkpoints also the line.
          SystemExit: a signal asked the process to end; the state was saved before.
        """
        if not callable(batches) and not hasattr(batches, "__iter__") and not hasattr(batches, "__getitem__"):
            raise ArgumentTypeError(
                f"fit: batches must be an iterable, or a function of the step, got a {type(batches).__name__}.",
                hint="a DataLoader, a list of batches, or lambda step: (inputs, targets)",
            )
        self.steps, self.should_stop = steps, False
        self._run = _jitted(self) if self.jit else self.step
        self.callbacks = list(callbacks)
        source = stream(batches, self.done * self.accumulate, self.seed)
        self.model.train()
        with Interrupt() as interrupt, ExitStack() as ends:
            for callback in self.callbacks:
                ends.callback(callback.end, self)
                callback.begin(self)
            try:
                while self.done < steps and not interrupt.asked and not self.should_stop:
                    parts = self.parts_from(source, interrupt)
                    if parts is None:
                        break
                    figures = self.make_step(parts)
                    self.unread.append(figures["loss"])
                    is_shown = self.done % SHOW_EVERY == 0 or self.done == steps
                    if is_shown:
                        self.look_at_losses()
                    numbers = read(figures) if is_shown else {}
                    started = time.perf_counter()
                    for callback in self.callbacks:
                        callback.after_step(self, parts)
                    self.beside += time.perf_counter() - started
                    if is_shown:
                        self.show(numbers)
                self.save()
            except NotFinite as seen:
                raise self.explained(str(seen), batches) from None
        if interrupt.status:
            raise SystemExit(interrupt.status)
        return self.done

    def parts_from(self, source: Iterator[Batch], interrupt: Interrupt) -> list[Batch] | None:
        """Returns the batches of the next step; None if a signal has also ended a DataLoader's workers."""
        try:
            return [tensors_of(next(source)) for _ in range(self.accumulate)]
        except WorkerError:
            if not interrupt.asked:
                raise
            return None

    def make_step(self, parts: Sequence[Batch]) -> Figures:
        """Runs step number `done` with its learning rate and seed, and counts it."""
        if self.schedule is not None:
            factor = self.schedule(self.done)
            for group, rate in zip(self.groups, self.rates):
                group["lr"] = rate * factor
        manual_seed(seed_from(self.seed, self.done, STEP))
        figures = self._run(*parts)
        self.done += 1
        return figures

    def show(self, figures: Mapping[str, float]) -> None:
        """Passes figures of the latest step to every callback."""
        self.latest |= figures
        for callback in self.callbacks:
            callback.shown(self, figures)

    def tell(self, text: str) -> None:
        """Prints a text of the latest step, and passes it to every callback."""
        between = "\n" if "\n" in text else " "
        print(f"after step {self.done:,}:{between}{text}", file=sys.stderr, flush=True)
        for callback in self.callbacks:
            callback.told(self, text)

    def save(self) -> None:
        """Asks every callback to save the current state."""
        for callback in self.callbacks:
            callback.save(self)

    # ---- what is asked between steps ----
    def model_in_use(self) -> Module:
        """Returns the model of averaged weights if there is one, else the model."""
        return self.model if self.averaged is None else self.averaged.module

    def flops_of_step(self, parts: Sequence[Batch]) -> int:
        """Returns the floating-point operations of a step: three times those of its loss. Computes nothing.

        The model is in evaluation mode meanwhile, so that running statistics do not change.

        Source: Chowdhery et al. 2022, arXiv:2204.02311, appendix B: model FLOPs, without recomputation.
        """
        self.model.eval()
        try:
            loss = self.figures_of(parts[0])["loss"]
        finally:
            self.model.train()
        return (1 + BACKWARD) * len(parts) * sum(map(flops_of, toposort(written_out([loss.op]))))

    # ---- a loss that is not finite ----
    def explained(self, seen: str, batches: Batches) -> AnomalyError:
        """Returns the error for a nonfinite number, by repeating all steps from the newest checkpoint.

        The first step that makes a weight nonfinite is repeated without jit, with a check of every value.
        """
        keeper = next((callback for callback in self.callbacks if callback.restore(self)), None)
        if keeper is None:
            return AnomalyError(f"fit: {seen}.", "callbacks=[pg.train.Checkpoints(folder, every=100)] finds the line.")
        kept, last = self.done, self.steps
        source = stream(batches, kept * self.accumulate, self.seed)
        while self.done < last:
            parts = [tensors_of(next(source)) for _ in range(self.accumulate)]
            figures = self.make_step(parts)
            if not (math.isfinite(figures["loss"].item()) and self.is_finite()):
                break
        number = self.done - 1
        keeper.restore(self)
        source = stream(batches, kept * self.accumulate, self.seed)
        while self.done < number:
            self.make_step([tensors_of(next(source)) for _ in range(self.accumulate)])
        try:
            with detect_anomaly(check_inf=True):
                self.make_step([tensors_of(next(source)) for _ in range(self.accumulate)])
                realize(self.parameters)
            found, line = "repeated, no operation gives such a number.", None
        except AnomalyError as error:
            found, line = error.fact.removeprefix("detect_anomaly: "), error.line
        finally:
            keeper.restore(self)
        fact = f"fit: {seen}. It comes from step {number + 1}: {found}"
        return AnomalyError(fact, f"the checkpoint of step {kept} is whole.", line=line)

    def look_at_losses(self) -> None:
        """Reads the losses of the latest steps, before anything is shown or saved.

        Raises:
          NotFinite: a loss is NaN or infinite; the error names its step.
        """
        losses, self.unread = self.unread, []
        for step, loss in enumerate(losses, self.done - len(losses) + 1):
            if not math.isfinite(number := float(loss.item())):
                raise NotFinite(f"the loss of step {step} is {number}")

    def is_finite(self) -> bool:
        """Returns whether all weights are finite."""
        return all(bool(parameter.isfinite().all().item()) for parameter in self.parameters)

    # ---- state ----
    def state_dict(self) -> dict[str, Any]:
        """Returns the state of a run: weights, averaged weights, the optimizer's state, scale, number of steps."""
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        kept = {"optimizer": states[0]} if len(states) == 1 else {"optimizers": states}
        state = {"done": self.done, "model": self.model.state_dict(), "scaler": self.scaler.state_dict(), **kept}
        return state if self.averaged is None else {**state, "averaged": self.averaged.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a state from `state_dict`.

        Learning rates stay those of this run. An average of weights that this training does not have is dropped, with a
        warning.

        Raises:
          PicogradError: names or shapes belong to another model.
        """
        rates = [group["lr"] for group in self.groups]
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state.get("optimizers") or [state["optimizer"]], strict=True):
            optimizer.load_state_dict(kept)
        if state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])
        if self.averaged is not None:
            self.averaged.load_state_dict(state.get("averaged") or _averaged_at_start(self.averaged, state["model"]))
        elif state.get("averaged"):
            warn_user("Trainer: the state has an average of weights; this training has no ema, and drops it.")
        for group, rate in zip(self.groups, rates):
            group["lr"] = rate
        self.unread = []
        self.done = int(state["done"])


def read(figures: Figures) -> dict[str, float]:
    """Returns figures as numbers; waits for the device."""
    return {name: float(value.item()) for name, value in figures.items()}


def _jitted(trainer: Trainer) -> Callable[..., Figures]:
    """Returns the step as one plan, bound to the objects that it uses: the model, the optimizer, the loss function."""
    model, optimizers, loss, step = trainer.model, trainer.optimizers, trainer.loss, trainer.step

    def run(*batches: Batch) -> Figures:
        assert trainer.model is model and trainer.optimizers is optimizers and trainer.loss is loss
        return step(*batches)

    return jit(run)


def _averaged_at_start(averaged: AveragedModel, model: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the initial state of an average, from a model's weights."""
    return {"n_averaged": Tensor(0), **{f"module.{name}": value for name, value in model.items()}}


# ---- signals ----
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))  # Windows lacks one


class Interrupt:
    """A context in which the first Ctrl-C or ending signal only sets `asked`; a second one has its usual effect.

    asked:   True after the first one
    status:  exit status if the process shall end: 128 plus the signal's number, as in a shell; else 0

    >>> with Interrupt() as interrupt:
    ...     interrupt.asked
    False
    """

    def __init__(self) -> None:
        self.asked, self.status = False, 0
        self._previous: dict[int, Any] = {}
        self._process = os.getpid()

    def __enter__(self) -> Interrupt:
        # Python lets only the main thread set handlers; elsewhere signals keep their usual meaning.
        if threading.current_thread() is threading.main_thread():
            ending = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
            self._previous = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, *ending)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # in a forked process, such as a DataLoader's worker, there is nothing to save
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)
            return
        again, self.asked = self.asked, True
        if number != signal.SIGINT:
            self.status = 128 + number
        if again:
            raise SystemExit(self.status) if self.status else KeyboardInterrupt


# ---- batches ----
def stream(batches: Batches, first: int, seed: int) -> Iterator[Batch]:
    """Yields batches from number `first` on, equal to those of an unbroken run.

    An iterable restarts at its end, each time with another seed, so that a DataLoader shuffles again; a resumed run skips
    the earlier batches. Each batch is made with its own seed, so that picograd's draws in it, such as augmentations, also
    depend only on its number.

    Raises:
      ArgumentError: an iterable has no batches.

    >>> [next(each) for each in [stream([1, 2, 3], 4, 0)] for _ in range(3)]
    [2, 3, 1]
    """
    if callable(batches):
        number = first
        while True:
            manual_seed(seed_from(seed, number, BATCH))
            yield batches(number)
            number += 1
    epoch, passed = divmod(first, len(batches)) if first and isinstance(batches, Sized) else (0, first)
    while True:
        manual_seed(seed_from(seed, epoch, EPOCH))
        place = 0
        for place, batch in enumerate(batches, 1):
            if passed:
                passed -= 1
            else:
                yield batch
            manual_seed(seed_from(seed, epoch, place, BATCH))
        if not place:
            raise ArgumentError("fit: there are no batches.", hint="an iterator is exhausted after one epoch: give a list.")
        epoch += 1


def tensors_of(batch: Batch) -> Batch:
    """Returns a batch with its arrays as tensors.

    >>> tensors_of((np.float32(1.5), [np.zeros(2)]))[0]
    Tensor(1.5)
    """
    if isinstance(batch, (np.ndarray, np.generic)):
        return Tensor(batch)
    if isinstance(batch, Mapping):
        return {name: tensors_of(part) for name, part in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [tensors_of(part) for part in batch]
    return batch
