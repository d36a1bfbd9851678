"""A mixture of experts: of many feed-forward parts each position is sent to a few, and only these are computed.

    shares = softmax(x @ router.T);   out = sum over the k largest of share_e * expert_e(x)

A pair of a position and an expert is a product of one row that reads the matrices of this expert alone, where they are.
Pairs are sorted by their experts, so that a matrix that several pairs read comes from memory once. No shape depends on the
choice of experts: one plan serves all.

Source: Shazeer et al. 2017, arXiv:1701.06538, section 2; Jiang et al. 2024, arXiv:2401.04088 (Mixtral).

Letters: n positions, C width, E experts, k chosen for each, P = n k pairs, F width of an expert.
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
        gate, up, down = (part.parts(expert_P[order_P], num).transpose(1, 2) for part in (self.gate, self.up, self.down))
        x_P1C = x_nC[order_P // self.chosen].unsqueeze(1)
        out_P1C = (self.activation(x_P1C @ gate) * (x_P1C @ up)) @ down
        out_nkC = out_P1C[order_P.argsort()].reshape(*shares_nk.shape, -1)
        out: Tensor = (out_nkC * shares_nk.unsqueeze(2)).sum(1).reshape(x_BTC.shape)
        return out
