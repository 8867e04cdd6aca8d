"""Where the tokens of an episode are recorded.

Turn t has slots of its own, S for the world's text and G for the answer, so every shape is fixed. Slots without a token
are marked as not valid. With a context of single turns, a turn is a row of its own; with a context of all turns, an
episode is. Either way a row comes after the prompt.
"""

from __future__ import annotations

from typing import NamedTuple

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


def as_rows(slots: Slots, x: Array) -> Array:
    """[rows, L] of an array over the slots of episodes [N, T, S + G]."""
    return x.reshape(-1, slots.per_row)
