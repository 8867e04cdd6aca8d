"""What is recorded of episodes, which is what is learned from: every token stands where it was read or sampled."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.algorithms.agent.slots import Slots
from stoix_like.types import Array


class Episodes(NamedTuple):
    """N episodes of at most T turns of S + G slots each. Turns that were not played have no valid slot.

    The first S slots of a turn have the world's tokens and what the answer is forced to begin with. The agent chose
    the tokens of the other G, and no others.
    """

    tokens: Array  # [N, T, S + G] int32
    is_valid: Array  # [N, T, S + G] bool: there is a token
    log_prob: Array  # [N, T, G] float32, of the chosen tokens when they were sampled; else 0
    value: Array  # [N, T, G] float32, of the states before them, unless a separate critic has yet to read them
    turns: Turns  # [N, T]

    @property
    def is_chosen(self) -> Array:
        """[N, T, G] bool: the agent chose a token."""
        return self.is_valid[..., -self.log_prob.shape[-1] :]

    @property
    def chosen(self) -> Array:
        """[N, T, G] int32, the tokens that the agent chose."""
        return self.tokens[..., -self.log_prob.shape[-1] :]


class Turns(NamedTuple):
    """What became of the turns, [N, T] each."""

    was_played: Array  # bool
    reward: Array  # float32, of the world
    penalty: Array  # float32, for answers that are malformed
    is_well_formed: Array  # bool: the answer was closed, and each of its segments named an action
    was_cut: Array  # bool: the answer did not end by itself
    num_segments: Array  # int32, of a closed answer; each should name an action
    num_named: Array  # int32, of these
    num_actions: Array  # int32, taken in the world: those named before the episode ended
    num_effective: Array  # int32, of these, after which the state is told otherwise than before


def empty_turns(num_turns: int, num_rows: int) -> Turns:
    """No turns, [T, N]."""
    shape = (num_turns, num_rows)
    no, zero, none = jnp.zeros(shape, bool), jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
    return Turns(no, zero, zero, no, no, none, none, none, none)


def empty_episodes(slots: Slots, num_rows: int) -> Episodes:
    """No episodes, with turns as their first axis: [T, N, ...]."""
    shape = (slots.turns, num_rows, slots.per_turn)
    number, turns = jnp.zeros((slots.turns, num_rows, slots.answer)), empty_turns(slots.turns, num_rows)
    return Episodes(jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool), number, number, turns)
