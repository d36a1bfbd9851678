"""Storage cells: aliases, writes through views, and what a trace is told."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, realize
from picograd.ir.opcode import OpCode
from picograd.tensor.cell import TakenBuffers, trace


class Recorder:
    """A trace that notes which cells are made, read and written, and whose values are asked for."""

    def __init__(self):
        self.made, self.reads, self.writes, self.host = [], [], [], []

    def on_make(self, cell):
        self.made.append(cell)

    def on_read(self, cell):
        self.reads.append(cell)

    def on_write(self, cell):
        self.writes.append(cell)

    def on_host_read(self, function):
        self.host.append(function)


@contextmanager
def tracing(by):
    """Has `by`, a trace or None, hear of everything within."""
    token = trace.set(by)
    try:
        yield by
    finally:
        trace.reset(token)


@pytest.fixture
def recorder():
    with tracing(Recorder()) as recorder:
        yield recorder


def test_a_trace_hears_of_reads_and_writes(device, recorder):
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    recorder.reads.clear()
    z = x + y
    assert recorder.made == [x.cell, y.cell, z.cell]
    assert recorder.reads == [x.cell, y.cell] and recorder.writes == []
    x += z
    assert x.cell in recorder.writes and z.cell in recorder.reads
    z.realize()
    assert z.op.code is OpCode.ADD
    z.tolist()
    assert recorder.host == ["tolist"]


def test_a_trace_hears_of_draws(device, recorder):
    from picograd.tensor.generator import default_generator

    first, second = Tensor.rand(2), Tensor.rand(2)
    state = default_generator.state(device)
    assert recorder.writes == [state.count, state.count]
    assert first.op is not second.op
    assert state.count.op.code is OpCode.ADD and state.count.op.src[0].code is OpCode.BUFFER
    with tracing(None):
        assert Tensor.rand(2).tolist() not in (first.tolist(), second.tolist())


def test_draws_inside_and_outside_a_trace_are_one_sequence(device):
    pg.manual_seed(3)
    plain = [Tensor.rand(2).tolist() for _ in range(4)]
    pg.manual_seed(3)
    first = Tensor.rand(2)
    with tracing(Recorder()):
        inside = [Tensor.rand(2), Tensor.rand(2)]
    last = Tensor.rand(2)
    assert [x.tolist() for x in (first, *inside, last)] == plain


def test_realize_replaces_the_graph_by_memory(device):
    x = Tensor([1.0, 2.0])
    y = (x + 1) * 2
    view = y.reshape(2, 1)
    assert y.op.code is OpCode.MUL
    realize([y, x, y])
    assert y.op.code is OpCode.BUFFER
    assert view.op.code is OpCode.RESHAPE and view.op.src[0] is y.op
    assert view.tolist() == [[4.0], [6.0]]


def test_graphs_made_before_realize_use_its_result(device):
    x = Tensor([1.0, 2.0])
    y = x + 1
    z = y * 2
    y.realize()
    assert z.tolist() == [4.0, 6.0]


def test_a_small_view_of_a_large_graph_computes_only_itself(device):
    large = Tensor.arange(10000) * 2
    assert large[3].item() == 6
    assert large.op.code is OpCode.MUL
    assert large.reshape(10, 1000).tolist()[0][3] == 6
    assert large.op.code is OpCode.BUFFER


def test_a_view_of_a_small_graph_computes_all_of_it(device):
    small = Tensor.arange(1000) * 2
    assert small[3].item() == 6
    assert small.op.code is OpCode.BUFFER


def test_writes_build_no_ladder_of_graphs_once_realized(device):
    x = Tensor([1.0])
    for _ in range(5):
        x += 1
        x.realize()
    assert x.op.code is OpCode.BUFFER and x.item() == 6.0


def test_random_writes_through_random_views_follow_numpy(device):
    rng = np.random.default_rng(1)
    for _ in range(30):
        array = rng.standard_normal((4, 6)).astype(np.float32)
        tensor = Tensor(array)
        mine, other = tensor, array
        for step in rng.integers(0, 4, 3):
            if step == 0:
                mine, other = mine.T, other.T
            elif step == 1:
                mine, other = mine[::2], other[::2]
            elif step == 2:
                mine, other = mine[:, ::-1], other[:, ::-1]
            else:
                mine, other = mine[1:], other[1:]
        mine *= 3
        other *= 3
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_lines_are_remembered(device):
    from picograd.ir.origin import lines_of

    x = Tensor([1.0, 2.0])
    y = x * 7.5
    (line,) = lines_of(y.op)
    assert line.file == __file__
    z = x * 7.5
    assert z.op is y.op
    assert [line.number for line in lines_of(y.op)] == [line.number, line.number + 3]


def graph_of(op) -> int:
    from picograd.ir.op import toposort

    return len(toposort([op]))


def test_a_loop_of_writes_builds_no_ever_longer_graph(device):
    w = Tensor([1.0, 2.0], requires_grad=True)
    import picograd as pg

    for _ in range(5):
        loss = (w * w).sum()
        w.grad = None
        loss.backward()
        with pg.no_grad():
            w -= 0.1 * w.grad
        loss.item()
        assert w.cell.op.code is OpCode.BUFFER and w.grad.cell.op.code is OpCode.BUFFER
        assert graph_of(loss.op) < 10
    np.testing.assert_allclose(w.detach().numpy(), np.array([1.0, 2.0]) * 0.8**5, rtol=1e-6)


def test_gradients_are_computed_with_their_loss(device, monkeypatch):
    from picograd.tensor import compute

    calls = []
    original = compute.realize
    monkeypatch.setattr(compute, "realize", lambda ops: calls.append(len(ops)) or original(ops))
    x = Tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    assert loss.item() == 5.0
    assert calls[0] == 2 and x.grad.cell.op.code is OpCode.BUFFER


@pytest.mark.parametrize("how", ["backward", "autograd.grad", "pg.grad"])
def test_gradients_are_computed_together_whichever_is_asked_for(how: str, device: str) -> None:
    needed = how != "pg.grad"
    x, w = Tensor([1.0, 2.0], requires_grad=needed), Tensor([[1.0, 3.0]], requires_grad=needed)
    if how == "backward":
        (x * w).exp().sum().backward()  # nobody has the loss
        grads = [x.grad, w.grad]
    elif how == "autograd.grad":
        grads = list(pg.autograd.grad((x * w).exp().sum(), (x, w)))
    else:
        grads = list(pg.grad(lambda x, w: (x * w).exp().sum(), argnums=(0, 1))(x, w))
    assert all(grad.cell.op.code is not OpCode.BUFFER for grad in grads)
    grads[1].tolist()
    assert all(grad.cell.op.code is OpCode.BUFFER for grad in grads)


def test_reading_memory_leaves_pending_writes_alone(device):
    x, y = Tensor([1.0]), Tensor([2.0])
    x += 1
    y.tolist()
    assert x.cell.op.code is OpCode.ADD
    (y + 1).tolist()
    assert x.cell.op.code is OpCode.BUFFER


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_does_not_wait_for_a_thread_it_does_not_have() -> None:
    cell = Tensor([1.0]).realize().cell
    taken = TakenBuffers([cell], [(1,)])
    taken.take([0])
    held, released = threading.Event(), threading.Event()

    def own() -> None:
        with taken.running:
            held.set()
            released.wait()

    thread = threading.Thread(target=own)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if cell.op.arg[1] == (1,) else 1)
    assert os.waitpid(child, 0)[1] == 0
    released.set()
    thread.join()
    assert cell.op.arg[1] == (1,)


@pytest.mark.req("B7")
def test_a_number_stored_on_another_device_stays_there() -> None:
    """A graph of constants alone lives everywhere; a tensor that holds one is where it says."""

    def there() -> Tensor:
        return Tensor([1.0, 2.0], device="NUMPY").realize()

    x = there().fill_(3.0).realize()
    assert x.device == "NUMPY" and (x + there()).tolist() == [4.0, 5.0]
    y = (there().zero_() * 2).realize()
    assert (y + there()).tolist() == [1.0, 2.0]
    state = there()
    state.zero_()
    step = pg.jit(lambda value: state.add_(value))
    for _ in range(3):
        step(there())
    assert state.device == "NUMPY" and state.tolist() == [3.0, 6.0]
    both = [Tensor.ones(2).zero_(), there().zero_()]  # the same graph, in one plan
    pg.realize(both)
    assert [x.cell.op.arg[0].device for x in both] == [Tensor.ones(2).device, "NUMPY"]
