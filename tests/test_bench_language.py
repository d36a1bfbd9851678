"""The benchmark's language models: the reference's gradients, its judgement, and picograd's side of the comparison."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import reference_language  # noqa: E402
from bench.language import Language, Recurrent, Transformer, flat, language_batches, mapped, network_weights  # noqa: E402
from bench.peers import load  # noqa: E402
from bench.reference import compared, make_judge, sampled_tokens  # noqa: E402
from bench.runner import make_runner  # noqa: E402
from bench.singles import Generation, Overhead, overhead_operands  # noqa: E402
from bench.workloads import make_data  # noqa: E402

GPT = Language("tiny_gpt", "language", Transformer(2, 2, 16, 8, 11), 3)
LSTM = Language("tiny_lstm", "language", Recurrent(12, 5, 11), 3)
READER = Transformer(2, 2, 16, 32, 61)
PREFILL = Generation("tiny_prefill", "prefill", READER, prompt=6, count=0)
DECODE = Generation("tiny_decode", "decode", READER, prompt=6, count=4)


@pytest.mark.parametrize("workload", [GPT, LSTM], ids=["gpt", "lstm"])
def test_gradients_of_the_reference_are_slopes_of_its_loss(workload: Language) -> None:
    network = workload.network
    run = reference_language._transformer if isinstance(network, Transformer) else reference_language._recurrent
    weights = mapped(lambda array: 5.0 * array.astype(np.float64), network_weights(network, "slopes"))
    x, y = (arrays[0] for arrays in language_batches(workload))
    grads = run(network, weights, x, y)[1]  # type: ignore[operator]
    rng = np.random.default_rng(0)
    for weight, grad in zip(flat(weights), flat(grads)):
        start, direction = weight.copy(), rng.standard_normal(weight.shape)
        losses = []
        for step in (1e-5, -1e-5):
            weight[...] = start + step * direction
            losses.append(run(network, weights, x, y)[0])  # type: ignore[operator]
        weight[...] = start
        # The error of a central difference is some step**2 = 1e-10 times a third derivative, which the norms make large.
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(np.sum(grad * direction), rel=2e-6, abs=2e-6)


def test_reference_gelu_uses_an_erf_right_to_13_figures() -> None:
    from math import erf

    x = np.linspace(-7.0, 7.0, 4001)
    assert np.max(np.abs(reference_language._erf(x) - [erf(at) for at in x])) < 2e-14


@pytest.mark.parametrize("workload", [GPT, LSTM], ids=["gpt", "lstm"])
def test_losses_rounded_to_float32_are_right_and_a_wrong_learning_rate_is_not(workload: Language) -> None:
    judge = make_judge(workload)
    losses = reference_language.language_losses(workload, 10)
    assert judge([float(np.float32(loss)) for loss in losses]).is_right
    slower = Language("tiny_" + workload.name[5:], "language", workload.network, 3, learning_rate=9e-4)
    assert not judge(reference_language.language_losses(slower, 10)).is_right


def _greedy(workload: Generation) -> np.ndarray:
    tokens = np.zeros(0, np.int32)
    for _ in range(workload.count):
        likeliest = reference_language.generation_logits(workload, tokens)[-1].argmax()
        tokens = np.append(tokens, likeliest)
    return tokens


def test_only_the_likeliest_tokens_and_the_logits_after_them_are_right() -> None:
    tokens, judge = _greedy(DECODE), make_judge(DECODE)
    logits = reference_language.generation_logits(DECODE, tokens)[-1][sampled_tokens(DECODE)]
    assert judge([*tokens, *logits]).is_right
    assert not judge([*tokens, *(logits + 1e-3)]).is_right
    other = [(tokens[0] + 1) % READER.vocabulary, *tokens[1:]]
    after = reference_language.generation_logits(DECODE, np.array(other))[-1][sampled_tokens(DECODE)]
    assert not judge([*other, *after]).is_right


def test_a_chain_is_right_to_float32_and_one_product_short_is_not() -> None:
    workload = Overhead("tiny_chain", "chain", num_kernels=5, num_arguments=2)
    xs, ws = overhead_operands(workload)
    outs = [xs[0]]
    for number in range(5):
        outs.append(outs[-1] @ ws[number % 2])
    judge = make_judge(workload)
    assert judge(compared(workload, outs[-1])).is_right
    assert not judge(compared(workload, outs[-2])).is_right


# ---- picograd's side ----

RUNS = [
    (GPT, "picograd"),
    (GPT, "picograd_layers"),
    (LSTM, "picograd"),
    (PREFILL, "picograd"),
    (PREFILL, "picograd_eager"),
    (DECODE, "picograd"),
    (DECODE, "picograd_eager"),
    (Overhead("tiny_sum", "sum", 1, 5), "picograd"),
    (Overhead("tiny_chain", "chain", 3, 2), "picograd_eager"),
]


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(("workload", "variant"), RUNS, ids=lambda part: part if isinstance(part, str) else part.name)
def test_picograd_computes_what_float64_says(workload: Language | Generation | Overhead, variant: str) -> None:
    runner = make_runner(load(variant), workload, variant, make_data(workload))
    verdict = make_judge(workload)(runner.values())
    assert verdict.is_right, verdict
