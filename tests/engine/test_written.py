"""Kernels whose product a kernel written by hand computes, on a simulated Hopper: which do, and that they mean the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import picograd as pg
import picograd.nn.functional as F
from bench.gpu_cases import gpt_step
from picograd import Tensor
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import TARGET, CudaSimDevice
from picograd.engine import devices, realize
from picograd.engine.choose import choose
from picograd.engine.compiler import Backend, Compiler
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Written, WrittenAttention, WrittenGradients
from picograd.look import watch
from picograd.record import replace
from tests.devices.cuda.test_render_hopper import HOPPER
from tests.helpers import in_full
from tests.host_compilers import kernels_asked_for, needs_compiler
from tests.null_gpu import null_gpu

pytestmark = needs_compiler
h = pg.bfloat16


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Makes CUDASIM a Hopper of four multiprocessors; gives the symbols of what it has compiled."""
    device, symbols = CudaSimDevice(), []
    device.target = replace(TARGET, has_warpgroups=True, multiprocessors=4, shared_bytes=227 * 1024)

    def compile_source(source: Any, target: Any) -> Any:
        symbols.extend(launch.symbol for launch in source.launches)
        return hostcxx.compile_source(source, target)

    monkeypatch.setenv("PICOGRAD_CACHE", "off")  # or what an earlier run has compiled would not be again
    monkeypatch.setitem(devices._compilers, "CUDASIM", Compiler(device, Backend(render, compile_source)))
    realize._plans.clear()
    yield symbols
    realize._plans.clear()


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def check(form: Callable[..., Any], *shapes: tuple[int, ...], eps: float = 2e-2) -> tuple[int, int]:
    """Compares with the evaluator; returns how many kernels there were, and launches."""
    given = arrays(*shapes)

    def on(device: str) -> list[np.ndarray[Any, Any]]:
        made = form(*[Tensor(array, device=device).cast(h).realize() for array in given])
        made = made if isinstance(made, tuple) else (made,)
        pg.realize(made)
        return [each.float().numpy() for each in made]

    expected = on("NUMPY")
    with watch() as counts:
        found = on("CUDASIM")
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=eps, atol=16 * eps)
    return counts.kernels, counts.launches


def chosen(form: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> list[type]:
    """Returns the kinds of choices for a form's kernels on a Hopper; nothing is compiled, and nothing runs."""
    realize._plans.clear()
    with null_gpu(replace(HOPPER, multiprocessors=4)), pytest.MonkeyPatch.context() as patch:
        given = [Tensor(array).cast(h).realize() for array in arrays(*shapes)]
        kernels = kernels_asked_for(patch)
        roots = form(*given)
        pg.realize(roots if isinstance(roots, tuple) else (roots,))
        compiler = devices.compiler_for(given[0].device)
        found = [type(choose(kernel, compiler.device, compiler.make, False, compiler.writes)) for kernel in kernels]
    realize._plans.clear()
    return found


def by_hand(symbols: list[str], suffix: str = "_product") -> int:
    return sum(symbol.endswith(suffix) for symbol in symbols)


LARGE = (136, 136), (136, 136)
FORMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "a product": (lambda a, b: a @ b, LARGE),
    "turned": (lambda a, b: a.T @ b.T, LARGE),
    "a bias": (lambda a, b, c: F.linear(a, b, c), (*LARGE, (136,))),
    "relu of a bias": (lambda a, b, c: F.linear(a, b, c).relu(), (*LARGE, (136,))),
    "gelu and a residual": (lambda a, b, c: F.gelu(F.linear(a, b, c)) + a, (*LARGE, (136,))),
    "a residual": (lambda a, b, c: c + a @ b, (*LARGE, (136, 136))),
    "computed operands": (lambda a, b: (a * 2).exp() @ (b + 1), LARGE),
    "a view": (lambda a, b: a[:, 8:144] @ b[:, 64:], ((136, 152), (136, 200))),
    "a batch": (lambda a, b: a @ b, ((3, 72, 136), (3, 136, 80))),
    "parts of K": (lambda a, b: (a.T @ b).relu(), ((1024, 72), (1024, 80))),
    "float32": (lambda a, b: a.float() @ b.float(), LARGE),
    "computed float32": (lambda a, b: a.float().exp() @ b.float(), LARGE),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_product_is_written_by_hand(name: str) -> None:
    assert chosen(*FORMS[name]).count(Written) == 1


@pytest.mark.variants(every=6)
@pytest.mark.parametrize("name", FORMS)
def test_a_product_is_written_by_hand_and_right(name: str, hopper: list[str]) -> None:
    form, shapes = FORMS[name]
    check(form, *shapes)
    assert by_hand(hopper) == 1


OTHERS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "small": (lambda a, b: a @ b, ((64, 64), (64, 64))),
    "few rows": (lambda a, b: a @ b, ((8, 512), (512, 1024))),
    "odd columns": (lambda a, b: a @ b, ((136, 136), (136, 137))),
    "odd K": (lambda a, b: a @ b, ((136, 137), (137, 136))),
    "a view that begins between 16 bytes": (lambda a, b: a[:, 1:] @ b, ((136, 145), (144, 136))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_is_generated(name: str) -> None:
    found = chosen(*OTHERS[name])
    assert found and Written not in found


def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, **options)


def of_one(x: Tensor, causal: bool = True) -> Tensor:
    q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
    return attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    pg.manual_seed(3)
    return attention(q, k, v, is_causal=True, dropout_p=0.25)


def dropped_apart(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each example has a seed of its own, and numbers of heads from 0 on."""
    pg.manual_seed(3)
    return pg.vmap(lambda *qkv: attention(*qkv, dropout_p=0.25), randomness="different")(q, k, v)


HEADS = ((1, 2, 136, 64),) * 3
ATTENTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "causal": (lambda q, k, v: attention(q, k, v, is_causal=True), HEADS),
    "views of one array": (of_one, ((1, 136, 3, 2, 64),)),
    "computed queries": (lambda q, k, v: attention(q.exp() * 2, k, v), HEADS),
    "grouped": (lambda q, k, v: attention(q, k, v, enable_gqa=True), (HEADS[0], *((1, 1, 200, 64),) * 2)),
    "a view between 16 bytes": (lambda q, k, v: attention(q, k[..., 1:], v), (HEADS[0], (1, 2, 136, 65), HEADS[0])),
    "a window": (lambda q, k, v: attention(q, k, v, is_causal=True, window=70), HEADS),
    "a soft cap": (lambda q, k, v: attention(q, k, v, soft_cap=2.0), HEADS),
    "256 features": (lambda q, k, v: attention(q, k, v, is_causal=True), ((1, 2, 136, 256),) * 3),
    "dropout": (dropped, ((2, 2, 136, 64),) * 3),
    "dropout of examples": (dropped_apart, ((2, 1, 2, 136, 64),) * 3),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_an_attention_is_written_by_hand(name: str) -> None:
    assert chosen(*ATTENTIONS[name]).count(WrittenAttention) == 1


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_an_attention_is_written_by_hand_and_right(name: str, hopper: list[str]) -> None:
    form, shapes = ATTENTIONS[name]
    check(form, *shapes)
    assert by_hand(hopper, "_heads") == 1


OTHER_ATTENTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "few features": (attention, ((1, 2, 136, 32),) * 3),
    "a mask": (lambda q, k, v, m: attention(q, k, v, attn_mask=m), (*HEADS, (136, 136))),
    "few queries": (attention, ((1, 2, 4, 64), *HEADS[1:])),
    "float32": (lambda q, k, v: attention(q.float(), k.float(), v.float()), HEADS),
    "a soft cap and dropout": (lambda q, k, v: attention(q, k, v, soft_cap=2.0, dropout_p=1e-9), HEADS),
    "no scale": (lambda q, k, v: attention(q, k, v, scale=0.0), HEADS),
}


@pytest.mark.parametrize("name", OTHER_ATTENTIONS)
def test_what_attention_cannot_be_is_generated(name: str) -> None:
    found = chosen(*OTHER_ATTENTIONS[name])
    assert found and WrittenAttention not in found


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("name", [*OTHERS, *OTHER_ATTENTIONS])
def test_what_is_generated_is_right(name: str, hopper: list[str]) -> None:
    form, shapes = {**OTHERS, **OTHER_ATTENTIONS}[name]
    check(form, *shapes)
    assert by_hand(hopper, "_heads") == 0
    assert name in OTHER_ATTENTIONS or by_hand(hopper) == 0  # a composed attention has products


def gradients_of(form: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    def step(*given: Tensor) -> tuple[Tensor, ...]:
        given = tuple(each.requires_grad_() for each in given)
        y = form(*given)
        (y * y).float().sum().backward()
        return y.detach(), *(each.grad for each in given if each.grad is not None)

    return step


DEVICES = "NUMPY", "CUDASIM"
OF_128_FEATURES = [name for name in ATTENTIONS if name != "256 features"]


@pytest.mark.parametrize("name", OF_128_FEATURES)
def test_gradients_of_an_attention_are_written_by_hand(name: str) -> None:
    form, shapes = ATTENTIONS[name]
    assert chosen(gradients_of(form), shapes).count(WrittenGradients) == 1


@pytest.mark.variants(every=5, first=1)
@pytest.mark.parametrize("name", OF_128_FEATURES)
def test_gradients_of_an_attention_are_written_by_hand_and_right(name: str, hopper: list[str]) -> None:
    form, shapes = ATTENTIONS[name]
    check(gradients_of(form), *shapes, eps=5e-2)
    assert [by_hand(hopper, f"_heads{part}") for part in ("", "_keys", "_queries")] == [1, 1, 1]


def packed(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Attention of a packed array, whose averages a product reads by rows; and the gradient of that array."""
    x = x.requires_grad_()
    y = F.linear(of_one(x), w) * 0.1
    (y * y).float().sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


def apart_too(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """The same, with the averages by heads and each gradient asked for as well."""
    parts = [x[:, :, i].transpose(1, 2).requires_grad_() for i in range(3)]
    seen = attention(*parts, is_causal=True)
    y = F.linear(seen.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1), w) * 0.1
    grads = pg.autograd.grad((y * y).float().sum(), parts)
    return y.detach(), seen.detach(), *grads, Tensor.stack([each.transpose(1, 2) for each in grads], 2)


@pytest.mark.parametrize(("form", "more"), [(packed, "_and_1"), (apart_too, "")])
def test_results_of_an_attention_are_stored_in_their_last_place(
    form: Callable[..., tuple[Tensor, ...]], more: str, hopper: list[str]
) -> None:
    """They are moved by no launch, unless they are wanted by themselves, too."""
    check(form, (2, 136, 3, 2, 64), (128, 128), eps=5e-2)
    own = [symbol for symbol in hopper if symbol.startswith("attention")]
    assert own == [f"attention_2_2_136_64{more}_heads{part}" for part in ("", "_keys", "_queries")]


@pytest.mark.parametrize("form", [packed, apart_too])
@pytest.mark.parametrize("shape", [(2, 136, 3, 2, 64), (1, 40, 3, 3, 24)])
def test_a_generated_attention_stores_them_there_too(
    shape: tuple[int, ...], form: Callable[..., tuple[Tensor, ...]], hopper: list[str]
) -> None:
    """In float32: one launch for the averages, and two for their gradients."""
    width = shape[3] * shape[4]
    given = arrays(shape, (width, width))
    expected, found = ([each.numpy() for each in form(*[Tensor(x, device=d).realize() for x in given])] for d in DEVICES)
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=2e-3)
    own = [symbol for symbol in hopper if symbol.startswith("attention")]
    assert form is apart_too or [symbol.partition("_and_1_")[2] for symbol in own] == ["0", "0", "1"]


def test_gradients_not_all_of_which_are_asked_for_are_generated() -> None:
    found = chosen(gradients_of(lambda q, k, v: attention(q, k.detach(), v)), HEADS)
    assert found and WrittenGradients not in found


@in_full
def test_gradients_and_jit_have_the_same_bits(hopper: list[str]) -> None:
    def step(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        x, w, b = (each.requires_grad_() for each in (x, w, b))
        y = F.gelu(F.linear(x, w, b))
        (y * y).float().sum().backward()
        assert x.grad is not None and w.grad is not None and b.grad is not None
        return y.detach(), x.grad, w.grad, b.grad

    shapes = (192, 136), (144, 136), (144,)
    check(step, *shapes, eps=5e-2)
    assert by_hand(hopper) == 3
    given = [[Tensor(array, device="CUDASIM").cast(h).realize() for array in arrays(*shapes)] for _ in range(2)]
    for one, other in zip(step(*given[0]), pg.jit(step)(*given[1]), strict=True):
        assert one.float().numpy().tobytes() == other.float().numpy().tobytes()


def test_every_product_of_a_step_of_gpt2_is_written_by_hand() -> None:
    """Forward, of inputs and of weights: what stands before a product of 16 bits does not decide who computes it."""
    target = replace(HOPPER, multiprocessors=132)
    with null_gpu(target) as (_, made), pytest.MonkeyPatch.context() as patch:
        kernels = kernels_asked_for(patch)
        gpt_step(pg, 1, 2, 128, 64, 4, dtype="bfloat16", vocabulary=512)()
        compiler = devices.compiler_for(pg.Tensor(0.0).device)
    products = [kernel for kernel in kernels if kernel.name.startswith("matmul")]
    assert len(products) >= 3 * 5
    choices = [choose(kernel, compiler.device, compiler.make, False, compiler.writes) for kernel in products]
    assert all(isinstance(choice, Written) for choice in choices)
    apart = [each for each in choices if isinstance(each, Written) and not each.is_whole and each.product.parts == 1]
    assert len(apart) <= 2  # the first residual is gathered from the embedding, and the last gradient goes to it
    assert not [source for source in made if "mma_m16n8k16" in source.text and "matmul" in source.name]
    anchors = {kernel: kernel.phases[0][0].anchor for kernel in kernels}
    for code, kind in ((OpCode.ATTENTION, WrittenAttention), (OpCode.ATTENTION_GRAD, WrittenGradients)):
        found = [kernel for kernel, anchor in anchors.items() if anchor is not None and anchor.code is code]
        assert found
        assert all(isinstance(choose(each, compiler.device, compiler.make, False, compiler.writes), kind) for each in found)
