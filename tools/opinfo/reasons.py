"""What of PyTorch's table of operators has no counterpart in picograd on purpose, and why.

A name stands for itself, or with a star at its end for all that begin so.
"""

from __future__ import annotations

COMPLEX = "complex numbers are left out"
STRIDES = "a tensor's layout in memory is picograd's own affair: no function says or asks for strides"
SPARSE = "sparse tensors are left out"
PRIVATE = "a function PyTorch's own code calls, not its users"
LAZY = "values are not read before they are asked for"
REASONS = {
    "left out": {
        **dict.fromkeys((
            "view_as_real", "view_as_complex", "complex", "polar", "stft", "istft", "imag", "cdouble", "cfloat", "chalf",
            "linalg.eig", "linalg.eigvals",
        ), COMPLEX),
        **dict.fromkeys((
            "as_strided*", "new_empty_strided", "empty_strided", "empty_permuted", "resize_", "resize_as_",
        ), STRIDES),
        "sparse.*": SPARSE, "to_sparse": SPARSE,
        "jiterator_*": "CUDA source as text: PyTorch's own", "hash_tensor": PRIVATE,
        "_*": PRIVATE, "torch.*": PRIVATE, "native_*": PRIVATE, "unsafe_*": PRIVATE, "grid_sampler_*": PRIVATE,
        "max_pool2d_with_indices_backward": PRIVATE, "constant_pad_nd": PRIVATE, "slice": PRIVATE,
        **dict.fromkeys((
            "alias_copy", "diagonal_copy", "expand_copy", "permute_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy",
            "transpose_copy", "unbind_copy", "unfold_copy", "unsqueeze_copy", "view_copy",
        ), PRIVATE),
        "__rdiv__": "Python 2's division",
        "masked.*": "torch.masked is a prototype",
    },
    "random": dict.fromkeys((
        "cauchy", "exponential", "geometric", "log_normal", "normal", "uniform", "randn", "randn_like", "rand_like",
        "randint", "randint_like", "multinomial", "bernoulli", "nn.functional.dropout*", "nn.functional.alpha_dropout",
        "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "nn.functional.fractional_max_pool*",
        "nn.functional.multi_head_attention_forward", "empty", "empty_like", "new_empty", "svd_lowrank", "pca_lowrank",
    ), "results are drawn, or left as they are: shapes and dtypes are compared"),
    "ties": dict.fromkeys(
        ("kthvalue", "median", "nanmedian", "mode", "topk", "sort", "argsort", "msort"),
        "which of equal elements is named is not said: of integers and 16-bit floats only values are compared",
    ),
    "no gradient": {
        **dict.fromkeys(
            ("nn.functional.max_unpool1d", "nn.functional.max_unpool2d", "nn.functional.max_unpool3d"),
            "places are named twice: only the value that is stored has a gradient",
        ),
        "nextafter": "made of bits: it has none",
    },
    "coarse": {
        "Muon": "PyTorch makes the step orthogonal in bfloat16, picograd in float32",
        "LBFGS": "a line search stops where the loss is flat to its last bit",
    },
    "signs": dict.fromkeys(
        ("svd", "linalg.svd", "linalg.eigh", "linalg.pinv"),
        "vectors have a free sign: what does not depend on it is compared",
    ),
}  # fmt: skip


# calls that raise in PyTorch and not here: words of PyTorch's message, and why
ACCEPTED = {
    **dict.fromkeys((
        "clamp_max", "clamp_min", "atan2", "fmax", "fmin", "ldexp", "logaddexp", "maximum", "minimum", "logical_and",
        "logical_or", "logical_xor", "heaviside", "lcm", "gcd", "isclose", "nextafter", "rsub", "hypot",
    ), (("",), "a number stands for a tensor of no axes")),
    "multinomial": (("probability", "categories", "sum of probabilities", "invalid multinomial"), LAZY),
    "cov": (("negative",), LAZY),
    **dict.fromkeys((
        "Adadelta", "Adafactor", "Adagrad", "Adamax", "ASGD", "LBFGS", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
    ), (("an iterable",), "one tensor stands for a list of one")),
    **dict.fromkeys(("Adam", "AdamW"), (
        ("capturable", "betas must be either", "an iterable"),
        "foreach, fused and capturable mean nothing here; a setting may be a tensor, and one tensor stands for a list",
    )),
    "nn.NLLLoss": (("expected scalar type",), "dtypes promote"),
    **dict.fromkeys(("nn.RNN", "nn.GRU", "nn.LSTM"), (("should be of type bool",), "0 and 1 are False and True")),
}  # fmt: skip


def reason_to_accept(name: str, message: str) -> str | None:
    """Returns why a call that raises in PyTorch with such a message need not raise here; None: it should."""
    words, reason = ACCEPTED.get(name, ((), ""))
    return reason if any(word in message if word else not message for word in words) else None


def reason_for(name: str, kind: str) -> str | None:
    """Returns why an operator is treated apart; None: it is not."""
    table = REASONS[kind]
    for pattern, reason in table.items():
        if name == pattern or pattern.endswith("*") and name.startswith(pattern[:-1]) and name[:2] != "__":
            return reason
    return None
