"""The weighting of the heuristic player: what a position is worth after each legal action, one decision ahead.

Frozen: ratings are anchored on it. It was written down before anything was trained on this game, and not tuned.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from stoix_like.envs.ringrift.actions import Actions
from stoix_like.envs.ringrift.boards import MAX_PLACED
from stoix_like.envs.ringrift.endings import outcome
from stoix_like.envs.ringrift.mobility import caps_at_least, mobility
from stoix_like.envs.ringrift.rules import legal_actions, step
from stoix_like.envs.ringrift.sets import Cells, ahead
from stoix_like.envs.ringrift.state import Position, RingRiftState, Rules, position_of, sets_of
from stoix_like.envs.ringrift.territory import beside
from stoix_like.types import Array

_WIN = 100.0
_RINGS, _TERRITORY = 10.0, 10.0  # for the whole of what wins
_MOBILE_STACK, _CAP_RING, _MARKER_PAIR, _CLOSED_SIDE = 0.1, 0.05, 0.05, 0.01
_NOT_LOOKED_AT = -1000.0


def preference(rules: Rules, actions: Actions, state: RingRiftState) -> Array:
    """[A] float32: the worth for the mover of the position after each legal action; -1000 of others.

    They are looked at by as many as a placement can have, three of each cell. Few positions have more.
    """
    at_once = MAX_PLACED * rules.board.num_cells
    legal, player = legal_actions(rules, actions, state), state.player.astype(jnp.int32)
    rank, count = jnp.cumsum(legal) - 1, jnp.sum(legal)

    def look(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        done, worths = carry
        chosen = jnp.nonzero(legal & (rank >= done), size=at_once, fill_value=actions.total)[0]
        after = jax.vmap(functools.partial(step, rules, actions), in_axes=(None, 0))(state, chosen)
        worth = jax.vmap(functools.partial(_worth, rules), in_axes=(0, None))(after, player)
        return done + at_once, worths.at[chosen].set(worth, mode="drop")

    nothing = jnp.int32(0), jnp.full((actions.total,), _NOT_LOOKED_AT)
    worths: Array = jax.lax.while_loop(lambda carry: carry[0] < count, look, nothing)[1]
    return worths


def _worth(rules: Rules, state: RingRiftState, player: Array) -> Array:
    """What a position is worth for a player, against the best of the others."""
    values = _values(rules, state)  # [P]
    is_own = jnp.arange(rules.num_players) == player
    best = jnp.max(jnp.where(is_own, -jnp.inf, values))
    return values[player] - best + _WIN * outcome(rules, state)[player]


def _values(rules: Rules, state: RingRiftState) -> Array:
    """[P] what each player has: rings and territory on the way to victory, stacks that can move, rings in caps, pairs
    of markers in a row, and sides of open cells that its markers or its territory close."""
    position = position_of(state)
    sets = sets_of(rules, position)
    found = mobility(rules, position, sets)
    mobile = (sets.control & (found.can_move | found.can_capture).at(None)).size()
    caps = jnp.sum(jnp.stack([(sets.control & cap.at(None)).size() for cap in caps_at_least(position)]), axis=0)
    markers = position.markers.at(slice(None), None)  # [P, 1]
    pairs = jnp.sum((markers & ahead(rules.ahead, markers)).size(), axis=1) // 2
    return (
        _RINGS * state.eliminated / rules.ring_victory
        + _TERRITORY * position.collapsed.size() / rules.territory_victory
        + _MOBILE_STACK * mobile
        + _CAP_RING * caps
        + _MARKER_PAIR * pairs
        + _CLOSED_SIDE * _closed_sides(rules, position, sets.open)
    )


def _closed_sides(rules: Rules, position: Position, open_cells: Cells) -> Array:
    """[P] sides between an open cell and a marker or a collapsed cell of each player."""
    own = position.markers | position.collapsed
    return jnp.sum(jnp.stack([(cells & open_cells.at(None)).size() for cells in beside(rules, own)]), axis=0)
