"""A mixture of experts: of many feed-forward parts each position is sent to a few, and only these are computed.

    shares = softmax(x @ router.T);   out = sum over the k largest of share_e * expert_e(x)

Pairs of a position and an expert are sorted by their experts. Those of an expert fill tiles of a few rows, the last one
with rows that nobody reads: each tile is a product that reads the matrices of this expert alone, where they are. There are
as many tiles as any choice may need. So no shape depends on the choice of experts: one plan serves all.

    experts of pairs, sorted  0 0 0 2 2 2 2 2      tiles of two rows  [0 0] [0 .] [2 2] [2 2] [2 .] and empty ones

Source: Shazeer et al. 2017, arXiv:1701.06538, section 2; Jiang et al. 2024, arXiv:2401.04088 (Mixtral).

Letters: n positions, C width, E experts, k chosen for each, P = n k pairs, F width of an expert, T tiles, R rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd import nn
from picograd.tensor.tensor import Tensor
from picograd_programs.models.packed import PackedMatrix


class Experts(nn.Module):
    """The sum of the chosen experts' outputs, each times its share.

    Args:
      router:         (E, C)
      gate, up:       (E F, C), the experts' matrices one after the other
      down:           (E C, F)
      activation:     of the gate
      chosen:         k
      shares_to_one:  the k shares are divided by their sum
    """

    def __init__(
        self, router: PackedMatrix, gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix,
        activation: Callable[[Tensor], Tensor], chosen: int, shares_to_one: bool,
    ):  # fmt: skip
        self.router, self.gate, self.up, self.down = router, gate, up, down
        self.activation, self.chosen, self.shares_to_one = activation, chosen, shares_to_one

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        x_nC = x_BTC.flatten(0, 1)
        shares_nk, expert_nk = self.router(x_nC).softmax(-1).topk(self.chosen)
        if self.shares_to_one:
            shares_nk = shares_nk / shares_nk.sum(-1, keepdim=True)
        expert_P, num = expert_nk.flatten(), self.router.shape[0]
        order_P = expert_P.argsort(stable=True)
        expert_T, pair_TR, slot_P = tiles(expert_P[order_P], num)
        gate, up, down = (part.parts(expert_T, num).transpose(1, 2) for part in (self.gate, self.up, self.down))
        x_TRC = x_nC[order_P[pair_TR] // self.chosen]
        out_TRC = (self.activation(x_TRC @ gate) * (x_TRC @ up)) @ down
        out_nkC = out_TRC.flatten(0, 1)[slot_P[order_P.argsort()]].reshape(*shares_nk.shape, -1)
        out: Tensor = (out_nkC * shares_nk.unsqueeze(2)).sum(1).reshape(x_BTC.shape)
        return out


TILE_ROWS = 12  # that read a matrix where it is; few pairs read it one by one, which is faster than tiles half full


def tiles(expert_P: Tensor, num: int, rows: int = TILE_ROWS) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the experts of tiles (T,), the pairs in their rows (T, R), and where in T R each pair is (P,).

    Args:
      expert_P:  (P,) experts of pairs, in order
      num:       E
      rows:      R, or 1 where an expert has fewer pairs on average, or how many is not known here

    >>> [part.tolist() for part in tiles(Tensor([0, 0, 0, 2, 2, 2]), 3, 2)]
    [[0, 0, 2, 2], [[0, 1], [2, 3], [3, 4], [5, 5]], [0, 1, 2, 4, 5, 6]]
    """
    pairs = expert_P.shape[0]
    if not isinstance(pairs, int) or pairs < num * rows:
        return expert_P, Tensor.arange(pairs).unsqueeze(1), Tensor.arange(pairs)
    num_tiles = (pairs + num * (rows - 1)) // rows
    of_E = (expert_P == Tensor.arange(num).unsqueeze(1)).sum(1)
    tiles_E = (of_E + (rows - 1)) // rows
    begin_E, first_E = of_E.cumsum(0) - of_E, tiles_E.cumsum(0) - tiles_E  # pairs and tiles before an expert's
    tile_T = Tensor.arange(num_tiles)
    expert_T = (tile_T.unsqueeze(1) >= first_E + tiles_E).sum(1).minimum(expert_P[-1:])  # of empty tiles one that is read
    pair_TR = (begin_E[expert_T] + (tile_T - first_E[expert_T]) * rows).unsqueeze(1) + Tensor.arange(rows)
    slot_P = first_E[expert_P] * rows + Tensor.arange(pairs) - begin_E[expert_P]
    return expert_T, pair_TR.clamp(max=pairs - 1), slot_P
