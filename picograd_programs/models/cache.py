"""Keys and values of the positions that a network has read, for the attention of later positions.

    y = cache.attend(layer, q, k, v, position, mask)

Tokens are those of all texts from one position on; or, with `Several`, one token each of some texts, each at its own
position: these share every product with a weight, and each attends only to its own text.

Letters: B texts, H heads, T positions, S positions of the cache, D features of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from picograd.errors import ShapeError
from picograd.nn import functional as F
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

Position = Length | int
Mask = Tensor | None


@dataclass(frozen=True)
class KVCache:
    """The keys and values of texts, by layer. Written in place.

    keys:    (B, H, S, D) for each layer
    values:  (B, H, S, E) for each layer; or none: the first E features of keys
    front:   zero positions before each text, which a mask may open
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    front: int = 0

    @staticmethod
    def empty(
        layers: int, keys: tuple[int, ...], values: tuple[int, ...] | None, front: int = 0, **settings: Any
    ) -> KVCache:
        """Returns a cache of zeros, from the shapes of keys and, if any, values; `settings` as in Tensor.zeros."""

        def zeros(shape: tuple[int, ...] | None) -> tuple[Tensor, ...]:
            return tuple(Tensor.zeros(*shape, **settings).clone() for _ in range(layers)) if shape else ()

        found = KVCache(zeros(keys), zeros(values), front)
        realize([*found.keys, *found.values])
        return found

    def text(self, number: Position) -> KVCache:
        """Returns the cache of one of the texts."""
        one = slice(number, number + 1)
        return KVCache(tuple(each[one] for each in self.keys), tuple(each[one] for each in self.values), self.front)

    def copy_text(self, source: Position, target: Position, length: Position) -> None:
        """Copies the first `length` positions of one text to another."""
        first, past = slice(source, source + 1), slice(0, self.front + length)
        for each in (*self.keys, *self.values):
            each[target : target + 1, :, past] = each[first, :, past]

    def check(self, name: str, tokens_BT: Tensor, position: Position) -> None:
        """Checks that tokens fit from a position on.

        Args:
          name:  name of the network in error messages

        Raises:
          ShapeError: tokens are not (B, T) with the cache's B, or do not fit.
        """
        rows, length = tokens_BT.shape if tokens_BT.ndim == 2 else (0, 0)
        batch, most = self.keys[0].shape[0], self.keys[0].shape[2] - self.front
        last = position.bounds[1] if isinstance(position, Length) else position
        if rows != batch or length < 1 or not 0 <= last <= most - length:
            raise ShapeError(
                f"{name}: tokens must be (B, T) with the cache's B={batch} and end by its {most:,} positions,"
                f" got {tokens_BT.shape} at {position}."
            )

    def attend(
        self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, position: Position, mask: Mask, **settings: Any
    ) -> Tensor:
        """Writes keys and values from a position on, and returns the attention of their queries, (B, H, T, D).

        Args:
          v_BHTD:    values; for a cache without values, the first features of keys
          mask:      (T, `front` plus the positions up to T's last), True for visible positions, or summands of scores;
          None: one query sees all positions up to its own; several, at position 0, do so causally
          settings:  settings of scaled_dot_product_attention
        """
        length, first = q_BHTD.shape[2], position + self.front
        now, seen = slice(first, first + length), slice(0, first + length)
        self.keys[layer][:, :, now] = k_BHTD
        if self.values:
            self.values[layer][:, :, now] = v_BHTD
        if length > 1 and mask is None:
            return F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True, **settings)
        keys_BHSD = self.keys[layer][:, :, seen]
        values_BHSD = self.values[layer][:, :, seen] if self.values else keys_BHSD[..., : v_BHTD.shape[3]]
        return F.scaled_dot_product_attention(q_BHTD, keys_BHSD, values_BHSD, attn_mask=mask, **settings)


@dataclass(frozen=True)
class Several:
    """Some texts of a cache, each with one token at a time: row b of the tokens belongs to texts[b].

    Positions and masks are tuples with an element for each text.
    """

    texts: tuple[KVCache, ...]

    def check(self, name: str, tokens_BT: Tensor, position: tuple[Position, ...]) -> None:
        """Checks that a token fits at each position; raises as KVCache does."""
        for row, (text, each) in enumerate(zip(self.texts, position, strict=True)):
            text.check(name, tokens_BT[row : row + 1], each)

    def attend(
        self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, position: tuple[Position, ...],
        mask: tuple[Mask, ...], **settings: Any,
    ) -> Tensor:  # fmt: skip
        """Returns the attention of each text's query to its own cache, (B, H, 1, D)."""
        parts = []
        for row, text in enumerate(self.texts):
            q, k, v = (each[row : row + 1] for each in (q_BHTD, k_BHTD, v_BHTD))
            parts.append(text.attend(layer, q, k, v, position[row], mask[row], **settings))
        return Tensor.cat(parts)


class NoCache:
    """Replaces a cache if whole texts are read without continuation."""

    def check(self, name: str, tokens_BT: Tensor, position: Any) -> None:
        """Does nothing."""

    def attend(
        self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, position: Any, mask: Any, **settings: Any
    ) -> Tensor:
        """Returns the attention of all positions, (B, H, T, D)."""
        return F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, attn_mask=mask, **settings)


class Cache(Protocol):
    """A KVCache with one position, Several with a tuple of them, or NoCache."""

    def check(self, name: str, tokens_BT: Tensor, position: Any) -> None:
        """Checks that tokens fit."""

    def attend(
        self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, position: Any, mask: Any, **settings: Any
    ) -> Tensor:
        """Writes keys and values, and returns the attention of their queries."""


Positions = Position | tuple[Position, ...]


def at_each(function: Callable[[Position], Any], position: Positions) -> Any:
    """Returns a function's value at a position, or the tuple of its values at several."""
    return tuple(map(function, position)) if isinstance(position, tuple) else function(position)


def rows_at(table: Tensor, position: Positions, length: int) -> Tensor:
    """Returns the rows of a table (S, ...) from a position on, (T, ...); for several positions (B, T, ...)."""
    found = at_each(lambda at: table[at : at + length], position)
    return Tensor.stack(found) if isinstance(position, tuple) else found
