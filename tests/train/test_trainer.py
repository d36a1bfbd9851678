"""The loop of a training: what a step does, when it stops, how it goes on, what it says of a loss that is not finite."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.errors import AnomalyError, ArgumentError, ArgumentTypeError, WorkerError
from picograd.nn import functional as F
from picograd_programs.train.callbacks import Checkpoints, Every
from picograd_programs.train.trainer import Callback, Interrupt, Trainer, cosine, stream

DRAWN = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
CLASSES = (DRAWN[:, 0] * DRAWN[:, 1] > 0).astype(np.int64)


def rows(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Batch `number`: rows drawn with replacement."""
    drawn = np.random.default_rng((0, number)).integers(0, 64, 16)
    return DRAWN[drawn], CLASSES[drawn]


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def trainer(dropout: float = 0.0, lr: float = 1e-2, loss: Any = loss, **settings: Any) -> Trainer:
    pg.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2))
    return Trainer(model, pg.optim.AdamW(model.parameters(), lr=lr), loss, **settings)


def weights(of: Trainer) -> list[np.ndarray]:
    state = [*of.model.parameters(), *(of.averaged.module.parameters() if of.averaged else [])]
    return [value.detach().numpy() for value in state]


def same(one: Trainer, other: Trainer) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(weights(one), weights(other), strict=True))


# ---- a step ----
def test_a_step_is_that_of_a_loop_written_out() -> None:
    ours = trainer(clip=0.5)
    ours.fit(rows, 10, [])
    pg.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 2))
    optimizer = pg.optim.AdamW(model.parameters(), lr=1e-2)
    for number in range(10):
        x, y = map(Tensor, rows(number))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    for a, b in zip(weights(ours), model.parameters(), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_jit_changes_no_bit_and_is_bound_to_what_it_trains() -> None:
    steps = [trainer(dropout=0.2, jit=jit) for jit in (True, False)]
    for each in steps:
        each.fit(rows, 8, [])
    np.testing.assert_allclose(weights(steps[0])[0], weights(steps[1])[0], rtol=1e-5, atol=1e-6)
    steps[0].model[0].weight.requires_grad_(False)
    before = weights(steps[0])[0]
    steps[0].fit(rows, 12, [])
    assert (weights(steps[0])[0] == before).all()  # a layer that is frozen in between stays as it is


def test_accumulated_batches_have_the_gradient_of_one_large_batch() -> None:
    apart, together = trainer(accumulate=4), trainer()
    apart.fit(rows, 6, [])
    together.fit(lambda number: [np.concatenate(part) for part in zip(*(rows(4 * number + i) for i in range(4)))], 6, [])
    for a, b in zip(weights(apart), weights(together), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_the_learning_rate_follows_the_schedule_in_each_group() -> None:
    model = nn.Linear(1, 1)
    groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.25}]
    optimizer = pg.optim.SGD(groups, lr=1.0)
    rates: list[list[float]] = []

    class Note(Callback):
        def after_step(self, trainer: Trainer, parts: Any) -> None:
            rates.append([group["lr"] for group in optimizer.param_groups])

    Trainer(model, optimizer, lambda model, x: model(x).sum() * 0.0, schedule=lambda step: 1 / (step + 1)).fit(
        [Tensor([[1.0]])], 3, [Note()]
    )
    assert rates == pytest.approx(np.array([[0.5, 0.25], [0.25, 0.125], [0.5 / 3, 0.25 / 3]]))


def test_averaged_weights_are_those_that_are_evaluated() -> None:
    seen = []
    ours = trainer(ema=0.9)
    ours.fit(rows, 5, [Every(5, lambda model: seen.append(model is ours.averaged.module and not model.training))])
    assert seen == [True] and ours.model.training
    assert not np.allclose(*(p[0].weight.detach().numpy() for p in (ours.model, ours.averaged.module)))


def test_batches_may_be_named_and_figures_more_than_a_loss() -> None:
    def named(model: nn.Module, *, points: Tensor, classes: Tensor) -> Mapping[str, Tensor]:
        logits = model(points)
        return {"loss": F.cross_entropy(logits, classes), "right": (logits.argmax(1) == classes).float().mean()}

    ours = trainer(loss=named)
    ours.fit(lambda number: dict(zip(("points", "classes"), rows(number))), 20, [])
    assert ours.latest.keys() == {"loss", "right"} and 0 <= ours.latest["right"] <= 1


# ---- 16 bits ----
def torch_of(ours: Trainer) -> torch.nn.Sequential:
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Dropout(0.0), torch.nn.Linear(16, 2))
    model.load_state_dict({name: torch.tensor(value.numpy()) for name, value in ours.model.state_dict().items()})
    return model


@pytest.mark.parametrize("jit", [True, False])
def test_float16_scales_the_loss_as_pytorch_does(jit: bool) -> None:
    rule = {"init_scale": 2.0**22, "growth_interval": 3}
    ours = trainer(precision=pg.float16, scaler=pg.GradScaler(**rule), clip=1.0, jit=jit)
    model, scaler, scales, found = torch_of(ours), torch.amp.GradScaler("cpu", **rule), [], []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for number in range(14):
        x, y = map(torch.tensor, rows(number))
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            value = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        before = weights(ours)
        ours.fit(rows, number + 1, [])
        found.append(ours.scaler.get_scale())
        is_skipped = number == 0 and scales[0] < 2.0**22
        assert not is_skipped or all((a == b).all() for a, b in zip(before, weights(ours)))
        assert ours.latest["loss"] == pytest.approx(value.item(), rel=5e-3)
    assert found == scales and min(scales) < 2.0**22 and any(a < b for a, b in zip(scales, scales[1:]))
    for a, b in zip(weights(ours), model.parameters(), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=0.02, atol=5e-3)


def test_the_scale_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    def made() -> Trainer:
        return trainer(precision=pg.float16, scaler=pg.GradScaler(init_scale=2.0**22, growth_interval=3))

    whole, first, second = made(), made(), made()
    whole.fit(rows, 12, [])
    checkpoints = Checkpoints(tmp_path)
    first.fit(rows, 7, [checkpoints])
    assert checkpoints.restore(second) and second.scaler.state_dict() == first.scaler.state_dict()
    assert second.scaler.get_scale() < 2.0**22
    second.fit(rows, 12, [])
    assert same(whole, second) and whole.scaler.state_dict() == second.scaler.state_dict()
    assert trainer(precision=pg.float16).scaler.get_scale() == 65536.0
    assert not trainer(precision=pg.bfloat16).scaler.is_enabled()


@pytest.mark.parametrize(
    ("found", "said"),
    [(lambda model, x, y: 1.0, "got a float."), (lambda model, x, y: {"error": x.sum()}, "got a dict of error.")],
)
def test_a_loss_function_without_a_loss_is_named(found: Any, said: str) -> None:
    with pytest.raises(ArgumentTypeError, match='loss must return a tensor, or a dict with "loss", ') as caught:
        trainer(loss=found).fit(rows, 1, [])
    assert caught.value.fact.endswith(said)


@pytest.mark.parametrize("wrong", [{"clip": 0.0}, {"accumulate": 0}, {"ema": 1.0}])
def test_settings_out_of_range_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"Trainer: {next(iter(wrong))} must be"):
        trainer(**wrong)


def test_flops_are_three_times_those_of_the_loss_and_counting_them_changes_nothing() -> None:
    pg.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))
    ours = Trainer(model, pg.optim.SGD(model.parameters(), lr=0.1), lambda model, x: model(x).sum())
    before = model[1].running_mean.tolist()
    flops = ours.flops_of_step([(Tensor.ones(4, 8),)])
    assert 3 * 2 * 4 * 8 * 8 < flops < 3 * 2 * 4 * 8 * 8 * 2
    assert model[1].running_mean.tolist() == before and model.training


# ---- steps ----
def test_an_iterable_is_begun_again_and_an_empty_one_is_an_error() -> None:
    assert trainer().fit([rows(0), rows(1)], 5, []) == 5
    with pytest.raises(ArgumentError, match="there are no batches"):
        trainer().fit([], 1, [])
    used_up = iter([rows(0)])
    with pytest.raises(ArgumentError) as caught:
        trainer().fit(used_up, 2, [])
    assert caught.value.hint == "an iterator is exhausted after one epoch: give a list."


@pytest.mark.parametrize("batches", [None, 5, 1.5])
def test_what_are_no_batches_is_refused_before_anything_begins(batches: Any) -> None:
    begun: list[int] = []

    class Told(Callback):
        def begin(self, trainer: Trainer) -> None:
            begun.append(1)

    with pytest.raises(ArgumentTypeError, match=f"fit: batches must be .*, got a {type(batches).__name__}") as caught:
        trainer().fit(batches, 3, [Told()])
    assert "DataLoader" in str(caught.value.hint) and not begun


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(
    ("wrong", "batch", "said"),
    [
        (lambda model, x: model(x).sum(), rows(0), "takes (model, x), and is called with the model, 2 parts of a batch"),
        (lambda model, x, y, z: model(x).sum(), rows(0), "missing a required argument: 'z'"),
        (lambda model, x, y: model(x).sum(), {"x": rows(0)[0]}, "with the model, x: missing a required argument: 'y'"),
    ],
)
def test_a_loss_with_other_arguments_than_a_batch_has_is_named(wrong: Any, batch: Any, said: str, jit: bool) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        trainer(loss=wrong, jit=jit).fit([batch], 1)
    assert said in caught.value.fact and "loss(model, inputs, targets)" in str(caught.value.hint)


def test_a_type_error_within_the_loss_stays_what_it_is() -> None:
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        trainer(loss=lambda model, x, y: None + 1).fit(rows, 1)
    assert not isinstance(caught.value, ArgumentTypeError)


def loader() -> pg.utils.data.DataLoader:
    data = pg.utils.data.TensorDataset(Tensor(DRAWN), Tensor(CLASSES))
    return pg.utils.data.DataLoader(data, batch_size=16, shuffle=True)


@pytest.mark.parametrize("batches", [lambda: rows, loader], ids=["function", "loader"])
@pytest.mark.parametrize("settings", [{}, {"ema": 0.9, "accumulate": 3, "clip": 1.0}], ids=["plain", "all"])
def test_a_run_that_goes_on_from_its_state_is_the_unbroken_one(
    batches: Callable[[], Any], settings: dict[str, Any]
) -> None:
    unbroken, first, second = (trainer(dropout=0.3, schedule=cosine(20, 3), **settings) for _ in range(3))
    unbroken.fit(batches(), 20, [])
    first.fit(batches(), 7, [])
    second.load_state_dict(first.state_dict())
    assert second.done == 7
    second.fit(batches(), 20, [])
    assert same(unbroken, second)


def test_a_state_without_an_average_begins_one() -> None:
    plain, averaged = trainer(), trainer(ema=0.9)
    plain.fit(rows, 5, [])
    averaged.load_state_dict(plain.state_dict())
    assert averaged.averaged is not None and averaged.averaged.n_averaged.item() == 0
    averaged.fit(rows, 6, [])


def test_stream_passes_over_the_batches_before() -> None:
    source = stream(range(3), 7, 0)
    assert [next(source) for _ in range(4)] == [1, 2, 0, 1]


class Noisy:
    """Examples with draws in them, as of images that are augmented."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> Tensor:
        return Tensor([float(number)]) + pg.rand(1)


def noisy_batch(step: int) -> Tensor:
    return step + pg.rand(2)


@pytest.mark.parametrize("kind", ["loader", "function"])
def test_batches_with_draws_in_them_follow_from_their_number(kind: str) -> None:
    def made(first: int, num: int) -> list[Any]:
        batches = noisy_batch if kind == "function" else pg.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True)
        source, found = stream(batches, first, 5), []
        for step in range(first, first + num):
            found.append(next(source).tolist())
            pg.manual_seed(step)  # as a step does
        return found

    whole = made(0, 15)
    assert whole[8:] == made(8, 7) and len({str(batch) for batch in whole}) == 15


# ---- the end ----
class Stop(Callback):
    """Notes what it is told, and presses Ctrl-C or asks for the end at a step."""

    def __init__(self, at: int = -1, ask: bool = False):
        self.at, self.ask, self.told = at, ask, list[str]()

    def begin(self, trainer: Trainer) -> None:
        self.told.append("begin")

    def after_step(self, trainer: Trainer, parts: Any) -> None:
        self.told.append(str(trainer.done))
        if trainer.done == self.at:
            if self.ask:
                trainer.should_stop = True
            else:
                signal.raise_signal(signal.SIGINT)

    def save(self, trainer: Trainer) -> None:
        self.told.append("save")

    def end(self, trainer: Trainer) -> None:
        self.told.append("end")


@pytest.mark.parametrize("ask", [False, True])
def test_ctrl_c_and_a_callback_end_a_run_between_two_steps(ask: bool) -> None:
    stop = Stop(2, ask)
    assert trainer().fit(rows, 9, [stop]) == 2
    assert stop.told == ["begin", "1", "2", "save", "end"]


def test_a_failing_step_ends_the_callbacks_and_saves_nothing() -> None:
    stop = Stop()
    with pytest.raises(ZeroDivisionError):
        trainer().fit(lambda number: 1 // 0, 9, [stop])
    assert stop.told == ["begin", "end"]


def test_first_ctrl_c_is_only_noted_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        assert not interrupt.asked
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_to_end_the_process_ends_it_after_saving_unless_the_program_has_a_handler(tmp_path: Path) -> None:
    class Ask(Callback):
        def after_step(self, trainer: Trainer, parts: Any) -> None:
            if trainer.done == 3:
                signal.raise_signal(signal.SIGTERM)

    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            trainer().fit(rows, 9, [Ask(), checkpoints := Checkpoints(tmp_path)])
        signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
        assert trainer().fit(rows, 9, [Ask()]) == 9
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143 and heard == [signal.SIGTERM]
    assert checkpoints.paths()[-1].name == "step-00000003.safetensors"


def test_a_signal_that_ends_a_loaders_workers_too_is_no_error(tmp_path: Path) -> None:
    def batches(number: int) -> tuple[np.ndarray, np.ndarray]:
        if number == 3:
            if asked:
                signal.raise_signal(signal.SIGTERM)
            raise WorkerError("DataLoader: worker 0 was killed.")
        return rows(number)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        asked = False
        with pytest.raises(WorkerError):
            trainer().fit(batches, 9)
        asked = True
        with pytest.raises(SystemExit):
            trainer().fit(batches, 9, [checkpoints := Checkpoints(tmp_path)])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert checkpoints.paths()[-1].name == "step-00000003.safetensors"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_was_forked_meanwhile_ends_at_its_signals(number: int) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with Interrupt() as interrupt:
            heard, say = os.pipe()
            child = os.fork()
            if not child:
                try:
                    os.write(say, b"!")
                    time.sleep(20)
                except KeyboardInterrupt:
                    os._exit(7)
                os._exit(0)
            os.read(heard, 1)  # signals before are lost in fork()
            os.kill(child, number)
            _, status = os.waitpid(child, 0)
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(heard)
        os.close(say)
    assert os.waitstatus_to_exitcode(status) == {signal.SIGTERM: -signal.SIGTERM, signal.SIGINT: 7}[number]
    assert not interrupt.asked


def test_in_another_thread_no_handler_is_changed() -> None:
    handlers = []

    def enter() -> None:
        with Interrupt():
            handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [before]


# ---- a loss that is not finite ----
def growing(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    error = model(x).sum(1) - y
    return (error * 1e3).square().mean()


def test_a_loss_that_is_not_finite_is_traced_to_its_step_and_line(tmp_path: Any) -> None:
    pg.manual_seed(1)
    model = nn.Linear(2, 2)
    ours = Trainer(model, pg.optim.SGD(model.parameters(), lr=1e5), growing)
    said = r"the loss of step 3 is inf\. It comes from step 3: this line has the first infinity: "
    with pytest.raises(AnomalyError, match=said) as caught:
        ours.fit(rows, 60, [Checkpoints(tmp_path, every=40)])
    assert "error * 1e3" in str(caught.value) and caught.value.hint == "the checkpoint of step 0 is whole."
    assert ours.done == 0 and ours.is_finite()  # it has the state of the checkpoint


def test_a_loss_of_drawn_data_is_traced_too(tmp_path: Any) -> None:
    def grown(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).exp().square().mean().log() * 1e30

    pg.manual_seed(0)
    model, x = nn.Linear(2, 1), pg.randn(64, 2)
    with pytest.raises(AnomalyError, match="It comes from step .*: this line has the first") as caught:
        Trainer(model, pg.optim.SGD(model.parameters(), lr=1e30), grown).fit([(x,)] * 9, 9, [Checkpoints(tmp_path, 1)])
    assert caught.value.hint == "the checkpoint of step 0 is whole."


def test_without_checkpoints_the_error_says_what_finds_the_line() -> None:
    pg.manual_seed(1)
    model = nn.Linear(2, 2)
    with pytest.raises(AnomalyError) as caught:
        Trainer(model, pg.optim.SGD(model.parameters(), lr=1e5), growing).fit(rows, 60, [])
    assert caught.value.fact == "fit: the loss of step 3 is inf."
    assert caught.value.hint == "callbacks=[pg.train.Checkpoints(folder, every=100)] finds the line."


def test_no_state_is_kept_after_a_loss_that_is_not_finite_though_weights_are(tmp_path: Any) -> None:
    def sick(model: nn.Module, x: Tensor, y: Tensor, bad: Tensor) -> Tensor:
        return loss(model, x, y) + (bad - 1).detach().log()

    checkpoints = Checkpoints(tmp_path, every=5, keep=2)
    with pytest.raises(AnomalyError, match=r"the loss of step 12 is nan\. It comes from step 12: .* LOG") as caught:
        trainer(loss=sick).fit(lambda n: (*rows(n), Tensor(2.0 if n < 11 else 0.0)), 60, [checkpoints])
    assert caught.value.hint == "the checkpoint of step 10 is whole."
    assert [path.name[5:13] for path in checkpoints.paths()] == ["00000005", "00000010"]


def test_an_average_that_is_dropped_is_said() -> None:
    with pytest.warns(UserWarning, match="average of weights"):
        trainer().load_state_dict(trainer(ema=0.9).state_dict())


# ---- several optimizers ----
def test_several_optimizers_of_a_training_are_as_one_with_groups_and_are_kept() -> None:
    whole = trainer(schedule=cosine(10))
    pg.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 2))
    parts = [pg.optim.AdamW(model[i].parameters(), lr=1e-2) for i in (0, 3)]
    several = Trainer(model, parts, loss, schedule=cosine(10))
    for each in (whole, several):
        each.fit(rows, 6)
    assert same(whole, several)
    other = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 2))
    resumed = Trainer(other, [pg.optim.AdamW(other[i].parameters(), lr=1e-2) for i in (0, 3)], loss, schedule=cosine(10))
    resumed.load_state_dict(several.state_dict())
    for each in (whole, several, resumed):
        each.fit(rows, 10)
    assert same(whole, several) and same(several, resumed)
