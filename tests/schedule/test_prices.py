"""What is computed again and what is stored, counted on steps of training: many layers cost so many times one."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.codegen.matmul import is_plain
from picograd.device import Target
from picograd.engine import compiler
from picograd.ir.op import Op, greatest, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.stages import Kernel, Nest, NestKind, Schedule
from picograd.ir.statements import Load, walk
from picograd.nn import functional as F
from picograd.road import lower, schedule_graphs
from picograd.schedule.create import KERNEL_VALUES_MAX
from picograd.tensor.core import realize
from tests.compilers.test_generations import CUDA
from tests.same_meaning import CPU_TARGETS

TARGETS = {"cpu": CPU_TARGETS[1], "gpu": CUDA["sm_90a"]}
LAYERS = (1, 2, 4, 8)
BATCH, LENGTH, FEATURES = 8, 1024, 64  # features of a head
MOST_PARAMS = 32


class Caught(Exception):
    """The graphs that were to be scheduled."""


def leaf(*shape: int) -> Tensor:
    return Tensor(np.zeros(shape, np.float32)).requires_grad_()


def block(x: Tensor, dropout: float, *weights: Tensor) -> Tensor:
    """A layer of GPT-2."""
    before, qkv, joined, after, up, down = [weights[i : i + 2] for i in range(0, 12, 2)]
    batch, length, width = x.shape
    parts = F.linear(F.layer_norm(x, (width,), *before), *qkv).reshape(batch, length, 3, width // FEATURES, FEATURES)
    q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
    x = x + F.dropout(F.linear(seen, *joined), dropout)
    return x + F.dropout(F.linear(F.gelu(F.linear(F.layer_norm(x, (width,), *after), *up)), *down), dropout)


def weights_of_block(width: int) -> list[Tensor]:
    shapes = (width,), (3 * width, width), (width, width), (width,), (4 * width, width), (width, 4 * width)
    return [w for shape in shapes for w in (leaf(*shape), leaf(shape[0]))]


def graphs_of_step(
    layers: int, dtype: str, dropout: float = 0.0, again: bool = False, width: int = 256, vocabulary: int = 512
) -> list[Op]:
    """Returns the graphs of a step of GPT-2 by AdamW, which is not computed; `again` asks for a checkpoint a layer."""
    table, places, blocks = leaf(vocabulary, width), leaf(LENGTH, width), [weights_of_block(width) for _ in range(layers)]
    last, head = (leaf(width), leaf(width)), (leaf(vocabulary, width), leaf(vocabulary))
    weights = [table, places, *[w for weights in blocks for w in weights], *last, *head]
    optimizer = pg.optim.AdamW(weights, 1e-3)
    averages = [{name: leaf(*w.shape).detach() for name in ("exp_avg", "exp_avg_sq")} for w in weights]
    states = {place: {"step": 9, **found} for place, found in enumerate(averages)}
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
    realize([value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)])
    text = Tensor(np.zeros((BATCH, LENGTH), np.int64))
    with pg.autocast("cpu", pg.float16 if dtype == "float16" else pg.bfloat16, enabled=dtype != "float32"):
        x = F.embedding(text, table) + F.embedding(pg.arange(LENGTH), places)
        for weights in blocks:
            x = pg.checkpoint(block, x, dropout, *weights) if again else block(x, dropout, *weights)
        logits = F.linear(F.layer_norm(x, (width,), *last), *head)
        F.cross_entropy(logits.flatten(0, 1), text.flatten()).backward()
    gc.collect()  # what a step computes may depend on what is still there of another one
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PICOGRAD_CACHE", "off")
            patch.setattr(compiler, "schedule_graphs", catch)
            optimizer.step()
    except Caught as caught:
        return list(caught.args)
    raise AssertionError("a step of training is scheduled")


def catch(graphs: Sequence[Op], target: Target) -> None:
    raise Caught(*graphs)


@lru_cache
def schedules(layers: int, dtype: str, dropout: float = 0.0, again: bool = False) -> dict[str, Schedule]:
    """Returns the schedule of a step for each target."""
    graphs = graphs_of_step(layers, dtype, dropout, again)
    return {name: schedule_graphs(graphs, target) for name, target in TARGETS.items()}


def params_of(nest: Nest) -> set[Op]:
    return {op for op in toposort([value for _, value in nest.outputs]) if op.code is OpCode.PARAM}


def nbytes_moved(schedule: Schedule) -> int:
    return sum(greatest(p.numel) * p.dtype.itemsize for item in schedule.kernel_items() for p in item.kernel.params)


@pytest.mark.variants(every=16)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "settings",
    [
        ("float32",), ("bfloat16",), ("float16",), ("bfloat16", 0.1), ("float32", 0.1), ("bfloat16", 0.0, True),
        ("float32", 0.0, True), ("float16", 0.1, True),
    ],
    ids=str,
)
def test_each_layer_of_a_network_costs_as_much_as_the_one_before(settings: tuple[object, ...], target: str) -> None:
    found = [schedules(layers, *settings)[target] for layers in LAYERS]
    kernels = [[item.kernel for item in schedule.kernel_items()] for schedule in found]
    assert max(len(params_of(nest)) for kernel in kernels[-1] for phase in kernel.phases for nest in phase) <= MOST_PARAMS
    assert max(len(kernel.params) for step in kernels for kernel in step) <= KERNEL_VALUES_MAX
    assert len(set(kernels[3])) <= len(set(kernels[1])) + 4  # but for groups of small ones
    one, two, four, eight = map(nbytes_moved, found)
    for more, layers in ((four - two, 2), (eight - four, 4)):
        assert more == pytest.approx((two - one) * layers, rel=0.01)


def products(schedule: Schedule) -> list[Kernel]:
    return [item.kernel for item in schedule.kernel_items() if item.kernel.phases[0][0].kind is NestKind.MATMUL]


def test_each_product_of_gpt2_reads_plain_operands_by_matrix_instructions() -> None:
    schedule = schedule_graphs(graphs_of_step(1, "bfloat16", width=768, vocabulary=4096), TARGETS["gpu"])
    found = products(schedule)
    assert len(found) == 5 * 3  # forward, and the gradients of x and of the weight
    for kernel in found:
        (nest,), *_ = kernel.phases
        for operand in nest.anchor.src:
            while operand.code in MOVEMENT:
                operand = operand.src[0]
            assert is_plain(operand), f"{kernel.name} computes an operand"
        assert "Mma(" in str(lower(kernel, TARGETS["gpu"]).phases), kernel.name
        assert len(kernel.params) <= 12


def test_the_classifier_of_gpt2_and_its_gradient_are_one_kernel_beside_the_loss() -> None:
    """How many targets count, by which each row's gradient is scaled, does not wait for the losses of the rows."""
    logits, labels = leaf(64, 512), Tensor(np.zeros(64, np.int64))
    loss = F.cross_entropy(logits, labels)
    (grad,) = pg.autograd.grad(loss, [logits])
    for target in TARGETS.values():
        (item,) = schedule_graphs([loss.op, grad.op], target).kernel_items()
        assert [len(phase) for phase in item.kernel.phases] == [1, 1, 1]
        assert sum(p.numel == logits.numel() for p in item.kernel.params) == 2  # the scores, and their gradients


def test_the_gradients_of_the_norms_of_gpt2_are_one_walk_over_what_they_read() -> None:
    """With the sums of the gradients that the walk itself stores: no launch behind it reads one of these arrays."""
    schedule = schedule_graphs(graphs_of_step(1, "bfloat16", width=768, vocabulary=4096), TARGETS["gpu"])
    numel, walks = BATCH * LENGTH * 768, 0
    for kernel in [item.kernel for item in schedule.kernel_items()]:
        reduced = {nest.reduced for phase in kernel.phases for nest in phase if nest.domain == (BATCH, LENGTH, 768)}
        if reduced != {(2,), (0, 1)}:  # of the first norm positions have a sum over the batch
            continue
        program = lower(kernel, TARGETS["gpu"])
        arrays = {slot for slot, param in enumerate(kernel.params) if param.numel == numel}
        readers = [{access.memory.arg[0] for access in walk(phase) if isinstance(access, Load)
                    and access.memory.code is OpCode.PARAM} & arrays for phase in program.phases]  # fmt: skip
        assert len(readers[0]) >= 2 and not any(readers[1:]), kernel.name
        walks += 1
    assert walks == 2
