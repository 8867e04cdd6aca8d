"""What a network sees of a position: planes of cells from the view of the player to move.

Players stand in the order of seats from the mover on, so that one network plays every seat. A ring is told by its level
and owner, so nothing of the stacks is lost; heights and caps are told besides, as thermometers. What belongs to no cell
is the same on all cells.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from stoix_like.envs.ringrift.mobility import at_least, caps_at_least
from stoix_like.envs.ringrift.sets import Cells, as_bools, joined, unpacked
from stoix_like.envs.ringrift.state import NUM_PHASES, RingRiftState, Rules, position_of
from stoix_like.types import Array

#: Rings in hand, shares of the eliminated rings and of the territory that win, from which a plane is set.
_HAND = np.array([1, 2, 3, 6, 10, 14])
_SIXTHS = np.array([1, 2, 3, 4, 5, 6])


def planes(rules: Rules, state: RingRiftState) -> Array:
    """[C, channels] bool: the stacks of the mover, those of others, then all that is known."""
    position = position_of(state)
    rings, markers, collapsed = (
        _from_mover(rules, state, cells, axis) for cells, axis in zip(position, (1, 0, 0), strict=True)
    )
    control = rings.at(0)
    sets = [
        control.at(slice(0, 1)),
        control.at(slice(1, None)).union(0).at(None),
        Cells(tuple(word.reshape(-1) for word in rings.words)),
        *(cells.at(None) for cells in at_least(position)[1:]),
        *(cells.at(None) for cells in caps_at_least(position)[1:]),
        markers,
        collapsed,
        unpacked(state.focus).at(None),
    ]
    on_cells = as_bools(rules.board, joined(sets))  # [channels, C]
    scalars = _scalars(rules, state)
    everywhere = jnp.broadcast_to(scalars[:, None], (scalars.shape[0], rules.board.num_cells))
    return jnp.concatenate([on_cells, everywhere]).T


def _from_mover(rules: Rules, state: RingRiftState, cells: Cells, axis: int) -> Cells:
    """Sets by player, with the mover first."""
    order = (state.player.astype(jnp.int32) + np.arange(rules.num_players)) % rules.num_players
    return Cells(tuple(jnp.take(word, order, axis=axis) for word in cells.words))


def _scalars(rules: Rules, state: RingRiftState) -> Array:
    """What belongs to no cell, bools: by player from the mover on, then of the turn."""
    order = (state.player.astype(jnp.int32) + np.arange(rules.num_players)) % rules.num_players
    eliminated = _SIXTHS.size * state.eliminated.astype(jnp.int32)
    territory = _SIXTHS.size * position_of(state).collapsed.size()
    steps = [
        state.hand[order][:, None] >= _HAND[None],
        eliminated[order][:, None] >= _SIXTHS[None] * rules.ring_victory,
        territory[order][:, None] >= _SIXTHS[None] * rules.territory_victory,
    ]
    stands = (state.candidate >= 0) & (order == state.candidate)  # [P], the only one who could act of late
    rounds = (state.candidate >= 0) & (state.rounds >= np.array([1, 2]))
    turn = jnp.stack([state.has_acted, state.is_recovery, state.can_skip])
    phase = state.phase == np.arange(NUM_PHASES - 1)
    return jnp.concatenate([*(step.reshape(-1) for step in steps), stands, rounds, turn, phase])


def num_planes(rules: Rules) -> int:
    """Channels."""
    players, height = rules.num_players, rules.board.max_height
    return 2 + height * players + 2 * (height - 1) + 2 * players + 1 + num_shared_planes(rules)


def num_shared_planes(rules: Rules) -> int:
    """Channels that are the same on all cells, the last ones."""
    players = rules.num_players
    return players * (len(_HAND) + 2 * len(_SIXTHS)) + players + 2 + 3 + NUM_PHASES - 1
