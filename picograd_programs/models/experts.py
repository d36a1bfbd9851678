"""A mixture of experts: each position is routed to a few of many feed-forward parts, and only these are computed.

    scores = softmax(x @ router.T);   out = sum over the k largest of share_e * expert_e(x)

Pairs of a position and an expert are sorted by expert. An expert's pairs fill tiles of a few rows, the last padded with
unused rows: each tile is a product that reads only this expert's matrices, in place. The number of tiles suffices for any
routing, so no shape depends on it, and one plan serves all.

    experts of pairs, sorted  0 0 0 2 2 2 2 2      tiles of two rows  [0 0] [0 .] [2 2] [2 2] [2 .] and empty ones

Source: Shazeer et al. 2017, arXiv:1701.06538, section 2; Jiang et al. 2024, arXiv:2401.04088 (Mixtral); DeepSeek 2024,
       arXiv:2405.04434, section 2.2 (groups of experts), and arXiv:2412.19437, section 2.1.2 (corrected scores).

Letters: n positions, C width, E experts, k chosen for each, P = n k pairs, F width of an expert, T tiles, R rows of a tile,
         G groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from picograd import nn
from picograd.tensor.tensor import Tensor
from picograd_programs.models.packed import PackedMatrix


@dataclass(frozen=True)
class Routing:
    """The routing to experts, and their weights.

    chosen:         k
    shares_to_one:  the k weights are divided by their sum
    is_sigmoid:     scores are sigmoids of the logits; otherwise their softmax
    groups:         G, of consecutive experts; only those of the best groups are chosen. 1: no groups
    best_groups:    number of these groups
    corrects:       a correction is added to each score for the choice, but not to its weight
    scale:          factor of the weights
    """

    chosen: int = 0
    shares_to_one: bool = True
    is_sigmoid: bool = False
    groups: int = 1
    best_groups: int = 1
    corrects: bool = False
    scale: float = 1.0


def are_groups(experts: int, groups: int, best: int) -> bool:
    """True if experts divide into groups of two or more (or form one group), at least as many as the best."""
    return experts % groups == 0 and best <= groups and (groups == 1 or experts // groups > 1)


class Router(nn.Module):
    """The experts of each position, and their weights.

    Args:
      linear:      (E, C)
      correction:  (E,), or None
    """

    def __init__(self, linear: Callable[[Tensor], Tensor], correction: Tensor | None, routing: Routing):
        self.linear, self.routing = linear, routing
        self.register_buffer("correction", correction)

    def forward(self, x_nC: Tensor) -> tuple[Tensor, Tensor]:
        """x (n, C) -> weights (n, k), experts (n, k)."""
        routing, logits_nE = self.routing, self.linear(x_nC)
        scores_nE = logits_nE.sigmoid() if routing.is_sigmoid else logits_nE.softmax(-1)
        rated_nE = scores_nE if self.correction is None else scores_nE + self.correction
        if routing.groups > 1:
            rated_nE = self._of_best_groups(rated_nE)
        shares_nk, expert_nk = rated_nE.topk(routing.chosen)
        if self.correction is not None:
            shares_nk = scores_nE.gather(1, expert_nk)
        if routing.shares_to_one:
            shares_nk = shares_nk / shares_nk.sum(-1, keepdim=True)
        return shares_nk * routing.scale, expert_nk

    def _of_best_groups(self, rated_nE: Tensor) -> Tensor:
        """Returns the scores, with -inf for other groups. A group has the score of its best expert, or its two best."""
        rated_nGe = rated_nE.unflatten(1, (self.routing.groups, -1))
        of_group_nG = rated_nGe.topk(1 if self.correction is None else 2).values.sum(-1)
        best_nb = of_group_nG.topk(self.routing.best_groups).indices
        is_best_nG = (best_nb.unsqueeze(1) == Tensor.arange(self.routing.groups).unsqueeze(1)).any(-1)
        return rated_nGe.where(is_best_nG.unsqueeze(2), -math.inf).flatten(1)


class Expert(nn.Module):
    """One of the three matrices of all experts, with optional biases.

    Args:
      matrix:  (E R, K), the experts' matrices, concatenated
      biases:  (E, R), or None
      num:     E
    """

    def __init__(self, matrix: PackedMatrix, biases: Tensor | None, num: int):
        self.matrix, self.num = matrix, num
        self.register_buffer("biases", biases)

    def of(self, expert_T: Tensor) -> Callable[[Tensor], Tensor]:
        """Returns the products of several experts, (T, R, K) -> (T, R, R)."""
        weight = self.matrix.parts(expert_T, self.num).transpose(1, 2)
        biases = None if self.biases is None else self.biases[expert_T].unsqueeze(1)
        return lambda x: x @ weight if biases is None else x @ weight + biases


class Experts(nn.Module):
    """The sum of the chosen experts' outputs, times their weights.

    Args:
      router:  router to E experts
      gate:    matrices of all experts, C -> F
      up:      C -> F
      down:    F -> C
      opened:  gated values: (gate, up) -> F
    """

    def __init__(self, router: Router, gate: Expert, up: Expert, down: Expert, opened: Callable[[Tensor, Tensor], Tensor]):
        self.router, self.gate, self.up, self.down, self.opened = router, gate, up, down, opened

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        x_nC = x_BTC.flatten(0, 1)
        shares_nk, expert_nk = self.router(x_nC)
        expert_P = expert_nk.flatten()
        order_P = expert_P.argsort(stable=True)
        expert_T, pair_TR, slot_P = tiles(expert_P[order_P], self.gate.num)
        gate, up, down = (part.of(expert_T) for part in (self.gate, self.up, self.down))
        x_TRC = x_nC[order_P[pair_TR] // self.router.routing.chosen]
        out_TRC = down(self.opened(gate(x_TRC), up(x_TRC)))
        out_nkC = out_TRC.flatten(0, 1)[slot_P[order_P.argsort()]].reshape(*shares_nk.shape, -1)
        return (out_nkC * shares_nk.unsqueeze(2)).sum(1).reshape(x_BTC.shape)


TILE_ROWS = 12  # rows that share one reading of a matrix; one by one, few pairs are faster than half-full tiles


def tiles(expert_P: Tensor, num: int, rows: int = TILE_ROWS) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the experts of tiles (T,), the pairs in their rows (T, R), and the position of each pair in T R (P,).

    Args:
      expert_P:  (P,) experts of pairs, sorted
      num:       E
      rows:      R, or 1 if an expert has fewer pairs on average, or their number is symbolic

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
