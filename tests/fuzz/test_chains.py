"""Random chains of movement and indexing are what PyTorch gives; `python -m tests.fuzz.chains` runs more of them."""

from __future__ import annotations

import pytest

from tests.fuzz.chains import WAYS, Chain, Differs, chain_of, check, failure

SEEDS = range(20)
FOUND = (
    # A piece without elements: the graph of the formula is its operand, which was as deep as the formula.
    Chain(
        313, "float32", ((1, 9, 6, 3),),
        ("v0.slice_scatter(v0[:v0.shape[0] - 3], 0, 3, v0.shape[0])", "v1.gather(0, v1.topk(1, 0).indices)"), 3,
    ),
    # Updates without elements: gradients of nothing go to them, as through any other operation.
    Chain(985, "float16", ((0, 7),), ("L.zeros_like(v0).scatter_add(0, ((P(*v0.shape) * 5 + 2) % v0.shape[0]), v0)",), 0),
    Chain(535, "float32", ((2, 3, 0),), ("L.zeros_like(v0).scatter(0, v0.shape[0] - 1 - P(*v0.shape).argsort(0), v0)",), 1),
)  # fmt: skip


@pytest.mark.variants
@pytest.mark.req("C3")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_chain_is_what_pytorch_gives(seed: int) -> None:
    said = failure(chain_of(seed), WAYS[seed % len(WAYS)])
    assert said is None, said


@pytest.mark.parametrize("chain", FOUND, ids=lambda chain: str(chain.seed))
@pytest.mark.parametrize("way", ["CPU", "jit"])
def test_a_chain_that_was_wrong(chain: Chain, way: str) -> None:
    check(chain, way)


def test_chains_are_long_and_know_most_lines() -> None:
    chains = [chain_of(seed) for seed in range(40)]
    words = {word.split("(")[0] for chain in chains for line in chain.lines for word in line.split(".")[1:] if "(" in word}
    assert max(len(chain.lines) for chain in chains) >= 10 and len(words) >= 40, sorted(words)


def test_a_failing_chain_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flip that is left out is found behind others, and is all that is left."""
    import picograd as pg

    monkeypatch.setattr(pg.Tensor, "flip", lambda self, *axes: self)
    chain = Chain(1, "float32", ((3, 4),), ("v0 + v0", "v1.transpose(0, 1)", "v2.flip([0])", "v3.reshape(-1)"), 0)
    said = failure(chain, "CPU")
    assert said is not None and said.startswith("Differs") and said.count("v0.flip([0])") == 1 and "transpose" not in said
    with pytest.raises(Differs):
        check(chain, "CPU")
