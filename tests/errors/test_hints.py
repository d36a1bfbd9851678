"""The mistakes that newcomers make most often, each with the whole text that it is answered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim

F = nn.functional
SCORES = Tensor.zeros(4, 10).realize()
MODEL = nn.Linear(2, 3)
for parameter in MODEL.parameters():
    parameter.realize()

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "classes as floats": (
        lambda: F.cross_entropy(SCORES, Tensor([1.0, 2.0, 3.0, 4.0])),
        "cross_entropy: a target of floats holds probabilities, so (4,) must have the shape of input (4, 10).\n"
        "  hint: target.long(), if it holds classes.",
    ),
    "classes as one-hot rows": (
        lambda: F.cross_entropy(SCORES, Tensor.zeros(4, 10).long()),
        "cross_entropy: target (4, 10) does not fit input (4, 10): it must be (4,).\n"
        "  hint: target.argmax(1), if it is one-hot; target.float(), if it holds probabilities.",
    ),
    "scores of a language model": (
        lambda: F.cross_entropy(Tensor.zeros(2, 3, 10), Tensor.zeros(2, 3).long()),
        "cross_entropy: target (2, 3) does not fit input (2, 3, 10): it must be (2, 10).\n"
        "  hint: classes are axis 1 of input; for (B, T, C) scores use input.flatten(0, 1) and target.flatten().",
    ),
    "scores as probabilities": (
        lambda: F.binary_cross_entropy(Tensor([1.5]), Tensor([1.0])).item(),
        "binary_cross_entropy: a probability is not in [0, 1].\n  hint: binary_cross_entropy_with_logits takes scores.",
    ),
    "a column of scores": (
        lambda: F.binary_cross_entropy_with_logits(Tensor.zeros(4, 1), Tensor.zeros(4)),
        "binary_cross_entropy_with_logits: target (4,) must have the shape of input (4, 1).\n"
        "  hint: target.reshape(input.shape)",
    ),
    "tensors given to the constructor": (
        lambda: nn.CrossEntropyLoss(SCORES, SCORES),
        "CrossEntropyLoss: ignore_index must be an int, got a Tensor of shape (4, 10) and dtype float32.\n"
        "  hint: make the layer first, then call it: layer = CrossEntropyLoss(...); layer(tensor).",
    ),
    "a model for its parameters": (
        lambda: optim.SGD(MODEL),
        "SGD: params must be an iterable, got Linear.\n  hint: model.parameters()",
    ),
    "a method that is not called": (
        lambda: optim.SGD(MODEL.parameters),
        "SGD: params must be an iterable, got method.\n  hint: parameters is a method: call it, parameters().",
    ),
    "parameters that are used up": (
        lambda: optim.Adam(iter(())),
        "Adam: got no parameters.\n"
        "  hint: an iterator can be read once: use list(model.parameters()) to read it twice.",
    ),
    "a setting of another library": (
        lambda: optim.SGD(MODEL.parameters(), learning_rate=0.1),
        "SGD: got an unexpected keyword argument 'learning_rate'.\n"
        "  hint: SGD(params, lr=0.001, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, *, maximize=False, "
        "**options)",
    ),
    "gradients of a model to clip": (
        lambda: nn.utils.clip_grad_norm_(MODEL, 1.0),
        "clip_grad_norm_: parameters must be a tensor or an iterable of tensors, got Linear.\n  hint: model.parameters()",
    ),
    "a list of layers": (
        lambda: nn.Sequential([MODEL]),
        "Sequential: layers must be a module, a function or a dict of modules, got list [Linear].\n"
        "  hint: a star before the list passes them one by one: Sequential(*layers).",
    ),
    "a class for a layer": (
        lambda: nn.Sequential(MODEL, nn.ReLU),
        "Sequential: ReLU is a class, not a layer.\n  hint: ReLU(...) makes a layer.",
    ),
    "one module for a list": (
        lambda: nn.ModuleList(MODEL),
        "ModuleList: modules must be an iterable of modules or None, got Linear.\n"
        "  hint: a list with one module in it, [module].",
    ),
    "an array for a tensor": (
        lambda: MODEL(np.ones((3, 2))),
        "Linear: input must be a tensor, got an ndarray of shape (3, 2) and dtype float64.\n"
        "  hint: pg.tensor(...) makes a tensor of it.",
    ),
    "images that are not flat": (
        lambda: nn.Linear(784, 10)(Tensor.zeros(4, 1, 28, 28)),
        "linear: input (4, 1, 28, 28) does not fit weight (10, 784): the last axes must be equal.\n"
        "  hint: input.flatten(1) fits; in a Sequential, nn.Flatten().",
    ),
    "an image without channels": (
        lambda: nn.Conv2d(1, 2, 3)(Tensor.zeros(28, 28)),
        "conv2d: input must be (N, C, H, W) or (C, H, W), got (28, 28).\n"
        "  hint: input.unsqueeze(0): (1, 28, 28) has one channel.",
    ),
    "channels at the end": (
        lambda: nn.Conv2d(3, 4, 3)(Tensor.zeros(2, 8, 8, 3)),
        "conv2d: input (2, 8, 8, 3) has 8 channels, weight (4, 3, 3, 3) with groups=1 needs 3.\n"
        "  hint: channels are axis 1: input.permute(0, 3, 1, 2), if they are the last axis.",
    ),
    "a norm of images for rows": (
        lambda: nn.BatchNorm2d(3)(Tensor.zeros(2, 3)),
        "BatchNorm2d: input must have 4 axes, got (2, 3).\n  hint: BatchNorm1d normalizes 2 axes.",
    ),
    "a batch of one": (
        lambda: nn.BatchNorm1d(3)(Tensor.zeros(1, 3)),
        "batch_norm: in training a channel needs at least two values, got input (1, 3).\n"
        "  hint: pass two examples or more (drop_last=True of the DataLoader), or call model.eval().",
    ),
    "the sizes of a batch to normalize": (
        lambda: nn.LayerNorm(4)(Tensor.zeros(2, 3)),
        "layer_norm: input (2, 3) does not end in (4,).\n  hint: LayerNorm(input.shape[-1])",
    ),
    "heads that do not divide": (
        lambda: nn.MultiheadAttention(10, 3),
        "MultiheadAttention: 3 heads do not divide embed_dim 10.\n  hint: num_heads may be 1, 2, 5, 10.",
    ),
    "the wrong axis to join along": (
        lambda: pg.cat([Tensor.zeros(2, 3), Tensor.zeros(2, 4)]),
        "cat: shapes must match except along axis 0, got (2, 3), (2, 4).\n  hint: they fit along axis 1: pg.cat([...], 1).",
    ),
    "a row and a matrix to join": (
        lambda: pg.cat([Tensor.zeros(2, 3), Tensor.zeros(3)]),
        "cat: shapes must match except along axis 0, got (2, 3), (3,).\n"
        "  hint: all need the same number of axes: unsqueeze or flatten some.",
    ),
    "an index that is too large": (
        lambda: Tensor.zeros(3)[5],
        "index: 5 is out of range for axis 0 of length 3 in shape (3,).\n  hint: indices are -3 to 2.",
    ),
    "two axes to exchange": (
        lambda: Tensor.zeros(2, 3).permute(0),
        "permute: (0,) does not name each of the 2 axes of (2, 3) once.\n  hint: x.transpose(0, 1) exchanges two axes.",
    ),
    "a loss without a graph": (
        lambda: Tensor([1.0]).sum().backward(),
        "backward: a float32 of shape () depends on no tensor that requires grad.\n"
        "  hint: set requires_grad=True on a tensor it is made of, and make it outside no_grad and without detach.",
    ),
    "the truth of a vector": (
        lambda: bool(Tensor([1.0, 2.0])),
        "bool: a tensor of shape (2,) has no single value; it needs exactly one element.\n  hint: x.any() or x.all()",
    ),
    "a vector to format": (
        lambda: f"{Tensor([1.0, 2.0]):.3f}",
        "format: '.3f' formats one number, not a tensor of shape (2,).\n"
        '  hint: [f"{number:.3f}" for number in x.flatten().tolist()]',
    ),
    "a float to count with": (
        lambda: range(Tensor(3.0)),
        "index: Python needs an integer here, got a tensor of float32.\n"
        "  hint: x.item() is a Python number; x.long() has integers.",
    ),
    "complex numbers": (
        lambda: Tensor([1 + 2j]),
        "Tensor: needs real numbers or bools, got list of NumPy dtype complex128.\n"
        "  hint: the real and the imaginary part are two tensors; pg.fft takes such pairs.",
    ),
    "words": (
        lambda: Tensor(["a", "b"]),
        "Tensor: needs real numbers or bools, got list of NumPy dtype <U1.\n"
        "  hint: number the words first: one integer per word.",
    ),
    "examples of other lengths": (
        lambda: next(iter(pg.utils.data.DataLoader([np.ones(2), np.ones(3)], batch_size=2))),
        "default_collate: arrays of shapes (2,), (3,) make no batch.\n"
        "  hint: collate_fn=... pads them, such as nn.utils.rnn.pad_sequence.",
    ),
    "a dict of tensors for parameters": (
        lambda: optim.SGD(MODEL.state_dict()),  # type: ignore[arg-type]
        "SGD: parameters must be leaf tensors, got str 'weight'.\n"
        "  hint: model.parameters(), or model.named_parameters(); for a dict its values().",
    ),
    "a result for a parameter": (
        lambda: optim.SGD([Tensor([1.0], requires_grad=True) * 2]),
        "SGD: parameters must be leaf tensors, got a Tensor of shape (1,) and dtype float32.\n"
        "  hint: make a leaf of a result: x.detach().requires_grad_().",
    ),
    "a rate as a text": (
        lambda: optim.SGD(MODEL.parameters(), lr="0.1"),  # type: ignore[arg-type]
        "SGD: lr must be a number or a tensor, got str '0.1'.\n"
        "  hint: a number has no quotes; float(text) and int(text) read one.",
    ),
    "a model for its optimizer": (
        lambda: optim.lr_scheduler.StepLR(MODEL, 1),  # type: ignore[arg-type]
        "StepLR: optimizer must be an Optimizer, got Linear.\n"
        "  hint: make one first: optimizer = pg.optim.SGD(model.parameters(), lr=0.1).",
    ),
    "shapes that fit along no axis": (
        lambda: pg.cat([Tensor.zeros(2, 3), Tensor.zeros(3, 4)]),
        "cat: shapes must match except along axis 0, got (2, 3), (3, 4).\n"
        "  hint: they differ along axes 0 and 1: pad, cut or reshape them.",
    ),
    "NumPy's deviation": (
        lambda: np.std(Tensor([1.0, 2.0])),
        "std: got an unexpected keyword argument 'dtype'.\n"
        "  hint: x.std() divides by N - 1, as PyTorch's, x.std(correction=0) by N; np.std(x.numpy()) is NumPy's.",
    ),
    "a path without a name": (
        lambda: pg.save({}, ""),
        "save: : cannot be written: its name is empty.",
    ),
    "a summary of nothing": (
        lambda: MODEL.summary(),
        "summary: Linear needs the shape of its input.\n  hint: linear.summary((64, 784))",
    ),
}


def test_pythons_own_errors_call_a_method_what_users_call_it() -> None:
    """Methods that picograd calls at every step are not wrapped: their error has no hint, but no internal name either."""
    with pytest.raises(TypeError, match=r"^Tensor.reshape\(\) got an unexpected keyword argument 'dims'"):
        Tensor([1.0]).reshape(dims=0)  # type: ignore[call-arg]


@pytest.mark.req("B6")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_common_mistake_is_answered_with_what_to_do(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    call, text = MISTAKES[mistake]
    with pytest.raises(pg.PicogradError) as caught:
        call()
    lines = str(caught.value).split("\n")
    assert lines[1].startswith("  at test_hints.py:"), "the line is the user's"
    assert "\n".join([lines[0], *lines[2:]]) == text
