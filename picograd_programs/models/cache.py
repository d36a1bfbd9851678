"""Keys and values of the positions that a network has read: what later positions look at, so that no text is read twice.

    y = cache.attend(layer, q, k, v, position, mask)

Tokens are those of all texts from one position on, or, beside `Several`, one token each of some texts, each at a position
of its own: these share every product with a weight, and each attends to its own text alone, as if it were read by itself.

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
    values:  (B, H, S, E); or none: the first E features of keys
    front:   places of zeros before each text, that a mask may open
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    front: int = 0

    @staticmethod
    def empty(
        layers: int, keys: tuple[int, ...], values: tuple[int, ...] | None, front: int = 0, **settings: Any
    ) -> KVCache:
        """Returns one of zeros, from the shapes of keys and of values, if there are any; `settings` as of Tensor.zeros."""

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
        """Makes the first `length` positions of a text the same as those of another."""
        first, past = slice(source, source + 1), slice(0, self.front + length)
        for each in (*self.keys, *self.values):
            each[target : target + 1, :, past] = each[first, :, past]

    def check(self, name: str, tokens_BT: Tensor, position: Position) -> None:
        """Checks that tokens fit from a position on.

        Args:
          name:  of the network, for the error

        Raises:
          ShapeError: tokens are not (B, T) with the cache's B, or end behind it.
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
        """Writes keys and values from a position on, and returns what their queries take in, (B, H, T, D).

        Args:
          v_BHTD:    values; of a cache without them, the first features of keys
          mask:      (T, those in front and S up to the last of T), True where a position sees another, or numbers that are
                     added to scores; None: one query sees all up to its own, and several, at position 0, the same
          settings:  of scaled_dot_product_attention
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
    """Some texts of a cache, of each of which one token is read at once: row b of the tokens is that of texts[b].

    Positions and masks are a tuple, of one for each text.
    """

    texts: tuple[KVCache, ...]

    def check(self, name: str, tokens_BT: Tensor, position: tuple[Position, ...]) -> None:
        """Checks that a token fits at each position; raises as KVCache."""
        for row, (text, each) in enumerate(zip(self.texts, position, strict=True)):
            text.check(name, tokens_BT[row : row + 1], each)

    def attend(
        self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, position: tuple[Position, ...],
        mask: tuple[Mask, ...], **settings: Any,
    ) -> Tensor:  # fmt: skip
        """Lets the query of each text attend to its own cache, and returns the results (B, H, 1, D)."""
        parts = []
        for row, text in enumerate(self.texts):
            q, k, v = (each[row : row + 1] for each in (q_BHTD, k_BHTD, v_BHTD))
            parts.append(text.attend(layer, q, k, v, position[row], mask[row], **settings))
        return Tensor.cat(parts)


class NoCache:
    """In place of a cache where a whole text is read, and nothing after it."""

    def check(self, name: str, tokens_BT: Tensor, position: Any) -> None:
        """Checks nothing."""

    def attend(
        self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, position: Any, mask: Any, **settings: Any
    ) -> Tensor:
        """Returns the values of all positions, averaged for each query, (B, H, T, D)."""
        return F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, attn_mask=mask, **settings)


class Cache(Protocol):
    """A KVCache with one position, Several with a tuple of them, or NoCache."""

    def check(self, name: str, tokens_BT: Tensor, position: Any) -> None:
        """Checks that tokens fit."""

    def attend(
        self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, position: Any, mask: Any, **settings: Any
    ) -> Tensor:
        """Writes keys and values, and returns what their queries take in."""


Positions = Position | tuple[Position, ...]


def at_each(function: Callable[[Position], Any], position: Positions) -> Any:
    """Returns a function's value at a position, or a tuple of those at several."""
    return tuple(map(function, position)) if isinstance(position, tuple) else function(position)


def rows_at(table: Tensor, position: Positions, length: int) -> Tensor:
    """Returns the rows of a table (S, ...) from a position on, (T, ...); of several positions (B, T, ...)."""
    found = at_each(lambda at: table[at : at + length], position)
    return Tensor.stack(found) if isinstance(position, tuple) else found
