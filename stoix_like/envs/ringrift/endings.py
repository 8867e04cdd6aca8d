"""How a game ends, and who is placed how."""

from __future__ import annotations

import jax.numpy as jnp

from stoix_like.envs.ringrift.state import (
    BY_RINGS,
    BY_TERRITORY,
    LAST_PLAYER,
    NOT_OVER,
    ONLY_OWNER,
    STALEMATE,
    Position,
    RingRiftState,
    Rules,
    Sets,
    position_of,
)
from stoix_like.types import Array

_ROUNDS_ALONE = 3  # turns with a real action that nobody else has, after the first


def at_end_of_turn(
    rules: Rules, state: RingRiftState, position: Position, sets: Sets, can_place: Array, ended: Array
) -> RingRiftState:
    """The state with its end, if `ended` says that the turn of the mover is over and somebody has won by that.

    In this order: rings, territory, one owner of all stacks, and a board without stacks where nobody can place.
    """
    owns, hand = sets.owned.any(), state.hand > 0
    has_stacks = sets.stacks.any()
    by_rings = state.eliminated >= rules.ring_victory  # [P]
    cells = position.collapsed.size()  # [P]
    by_territory = (cells >= rules.territory_victory) & (cells > jnp.sum(cells) - cells)
    others_bare = jnp.sum(owns | hand) == 1
    only_owner = sets.control.any() & others_bare & has_stacks
    is_stuck = ~has_stacks & ~jnp.any(can_place)
    last = _best_of_stuck(state, position)
    ending = jnp.where(is_stuck, STALEMATE, NOT_OVER)
    winner = jnp.where(is_stuck, last, -1)
    for found, name in ((only_owner, ONLY_OWNER), (by_territory, BY_TERRITORY), (by_rings, BY_RINGS)):
        ending = jnp.where(jnp.any(found), name, ending)
        winner = jnp.where(jnp.any(found), jnp.argmax(found), winner)
    bare = ~(owns | hand) & (state.lost_at == 0)
    has_acted = state.has_acted & ~state.is_recovery  # who could and did not is no candidate for the last one standing
    cancels = ended & ~has_acted & (state.candidate == state.player)
    return state._replace(
        candidate=jnp.where(cancels, -1, state.candidate).astype(jnp.int8),
        rounds=jnp.where(cancels, 0, state.rounds).astype(jnp.int8),
        ending=jnp.where(ended, ending, NOT_OVER).astype(jnp.int8),
        winner=jnp.where(ended, winner, -1).astype(jnp.int8),
        lost_at=jnp.where(bare, state.turn, state.lost_at),
        turn=state.turn + ended.astype(jnp.int16),
    )


def _best_of_stuck(state: RingRiftState, position: Position) -> Array:
    """Who wins where nobody can go on: by territory, then eliminated rings and those in hand, then markers. Of several
    the player whose turn has ended, if it is one of them, and otherwise nobody: -1."""
    rank = position.collapsed.size() * 128 + state.eliminated + state.hand
    rank = rank * 128 + position.markers.size()  # [P]
    is_best = rank == jnp.max(rank)
    is_shared = jnp.sum(is_best) > 1
    last = jnp.where(is_best[state.player], state.player, -1)
    return jnp.where(is_shared, last, jnp.argmax(is_best)).astype(jnp.int32)


def with_candidate(
    state: RingRiftState, player: Array, is_real: Array, is_passed: Array, begins: Array
) -> RingRiftState:
    """The state at the start of a player's turn, which wins if it is the third of the only one who can act.

    A candidate who has no real action any more is none, `is_passed` [P] being those whose turn went by.
    """
    again = is_real & (state.candidate == player)
    loses = (state.candidate == player) | is_passed[state.candidate]
    candidate = jnp.where(is_real, player, jnp.where(loses, -1, state.candidate))
    rounds = jnp.where(again, state.rounds + 1, jnp.where(is_real | loses, 0, state.rounds))
    wins = begins & (rounds >= _ROUNDS_ALONE) & again
    return state._replace(
        candidate=jnp.where(begins, candidate, state.candidate).astype(jnp.int8),
        rounds=jnp.where(begins, rounds, state.rounds).astype(jnp.int8),
        ending=jnp.where(wins, LAST_PLAYER, state.ending).astype(jnp.int8),
        winner=jnp.where(wins, player, state.winner).astype(jnp.int8),
    )


def outcome(rules: Rules, state: RingRiftState) -> Array:
    """[P] by colour: 1 for the first, -1 for the last, places between equally spaced, shared places averaged."""
    keys = _keys(rules, state)  # [P, K], the higher the better
    seats = rules.num_players
    differs = keys[:, None] != keys[None]  # [P, P, K]
    first = jnp.argmax(differs, axis=-1)
    gain = jnp.take_along_axis(keys[:, None] - keys[None], first[..., None], axis=-1)[..., 0]
    above = jnp.sum(gain < 0, axis=1)
    below = jnp.sum(gain > 0, axis=1)
    value = (below - above) / (seats - 1)
    return jnp.where(state.ending != NOT_OVER, value, 0).astype(jnp.float32)


def _keys(rules: Rules, state: RingRiftState) -> Array:
    position = position_of(state)
    rings = state.eliminated.astype(jnp.int32) + jnp.where(state.ending == STALEMATE, state.hand, 0)
    lost = jnp.where(state.lost_at == 0, jnp.int32(1 << 14), state.lost_at)
    return jnp.stack(
        [
            jnp.arange(rules.num_players) == state.winner,
            position.collapsed.size(),
            rings,
            position.markers.size(),
            lost,
        ],
        axis=1,
    ).astype(jnp.int32)
