"""Where the tokens of an episode stand while they are sampled, and what each attends to.

Turn t has slots of its own, S for the world's text and G for the answer, so all rows write at the same slots and every
shape is fixed. Slots without a token are marked as not valid: nothing attends to them, and positions are counts of the
valid tokens before. With a context of single turns, a turn is a row of its own; with a context of all turns, an episode
is. Either way a row comes after the prompt.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.types import Array


class Slots(NamedTuple):
    """The sizes of rows."""

    prompt: int  # P, tokens before the first turn
    turns: int  # T
    state: int  # S, slots of a turn for the world's text
    answer: int  # G, slots of a turn for the agent's answer
    is_conversation: bool  # turns attend to those before

    @property
    def per_turn(self) -> int:
        """Slots of a turn."""
        return self.state + self.answer

    @property
    def per_row(self) -> int:
        """L, slots of a row after the prompt."""
        return self.per_turn * (self.turns if self.is_conversation else 1)

    @property
    def reaches(self) -> tuple[int, ...]:
        """The slots of a quarter, half, three quarters and all of the turns: as far as a compiled turn may attend."""
        counts = {-(-self.turns * quarter // 4) for quarter in (1, 2, 3, 4)}
        return tuple(count * self.per_turn for count in sorted(counts))

    def first(self, turn: Array | int) -> Array | int:
        """The first slot of a turn in its row, after the prompt."""
        return turn * self.per_turn if self.is_conversation else 0


def as_rows(slots: Slots, x: Array) -> Array:
    """[rows, L] of an array over the slots of episodes [N, T, S + G]."""
    return x.reshape(-1, slots.per_row)


def positions(slots: Slots, is_valid: Array) -> Array:
    """[B, L] int32, the valid tokens before each slot of rows whose slots are valid [B, L]; the prompt counts."""
    count = jnp.cumsum(is_valid, axis=1, dtype=jnp.int32) - is_valid
    return slots.prompt + count


def attention_mask(slots: Slots, is_valid: Array, queries: Array) -> Array:
    """[B, Q, P + L] bool: what each of the slots `queries` [Q] of rows attends to.

    To the prompt, to the valid slots before it, and to itself. `is_valid` [B, L] is of the slots of the rows.
    """
    kept = jnp.concatenate([jnp.ones((is_valid.shape[0], slots.prompt), bool), is_valid], axis=1)  # [B, P + L]
    place = jnp.arange(kept.shape[1])[None]
    query = (slots.prompt + queries)[:, None]
    return (kept[:, None] & (place < query)[None]) | (place == query)[None]
