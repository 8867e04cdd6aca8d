"""Who decides next, and what: phases that offer nothing pass by themselves.

A turn that passes changes nothing on the board. So what every player could do is computed once for a board, and the
next decision is picked from that by comparing numbers; there is no loop over phases or seats.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.envs.ringrift import endings
from stoix_like.envs.ringrift.lines import can_recover, line_starts, may_recover, recoveries
from stoix_like.envs.ringrift.mobility import Mobility, mobility, movable, placeable
from stoix_like.envs.ringrift.sets import Cells, packed, unpacked
from stoix_like.envs.ringrift.state import (
    CAPTURE,
    CHAIN,
    FORCED_ELIMINATION,
    LINE,
    LINE_PAYMENT,
    MOVEMENT,
    NOT_OVER,
    OVER,
    PLACEMENT,
    TERRITORY,
    TERRITORY_PAYMENT,
    Position,
    RingRiftState,
    Rules,
    Sets,
    sets_of,
    take,
)
from stoix_like.envs.ringrift.territory import Claimant, claimable, first_cells
from stoix_like.types import Array


class Options(NamedTuple):
    """What each player could do on a board."""

    found: Mobility
    places: Cells  # [P, 3]
    can_place: Array  # [P] bool
    can_move: Array  # [P] bool, a move or a capture
    may_recover: Array  # [P] bool
    can_recover: Array  # [P] bool, there is a marker that can slide or strike
    has_stack: Array  # [P] bool
    has_rings: Array  # [P] bool, in hand or anywhere on the board


def options(rules: Rules, position: Position, sets: Sets, hand: Array) -> Options:
    """What each player could do, `hand` [P]."""
    found = mobility(rules, position, sets)
    places = placeable(found, hand)
    return Options(
        found=found,
        places=places,
        can_place=jnp.any(places.any(), axis=1),
        can_move=movable(found, sets),
        may_recover=may_recover(position, sets),
        can_recover=can_recover(recoveries(rules, position, sets)),
        has_stack=sets.control.any(),
        has_rings=(hand > 0) | sets.owned.any(),
    )


def next_decision(rules: Rules, state: RingRiftState, position: Position, after: Array) -> RingRiftState:
    """The state at the next decision, or at the end.

    `state` has what is not on the board, as the last action left it: the mover, its focus, hands, flags. `after` is the
    first phase that the mover may come to; PLACEMENT is certain, and OVER is the end of its turn.
    """
    sets = sets_of(rules, position)
    could = options(rules, position, sets, state.hand)
    following = _following(rules, state.player, could)
    payers = [
        chosen(state.is_recovery, take(sets.buried, state.player), take(sets.control, state.player)),
        take(sets.control, following),
    ]
    claims = claimable(rules, position, sets, [Claimant(state.player, payers[0]), Claimant(following, payers[1])])
    own_phase = _own_phase(rules, state, position, sets, could, claims[0], after)
    ended = own_phase == OVER
    state = endings.at_end_of_turn(rules, state, position, sets, could.can_place, ended)
    begins = ended & (state.ending == NOT_OVER)
    state = _begun(rules, state, could, following, begins)
    player = jnp.where(begins, following, state.player)
    phase = jnp.where(begins, _first_phase(could, following, claims[1]), own_phase)
    phase = jnp.where(state.ending == NOT_OVER, phase, OVER)
    acts = (phase == MOVEMENT) | (phase == CAPTURE) | (phase == CHAIN)
    region_cells = chosen(ended, claims[1], claims[0]).where(phase == TERRITORY)
    return state._replace(
        rings=packed(position.rings),
        markers=packed(position.markers),
        collapsed=packed(position.collapsed),
        places=packed(take(could.places, player).where(phase == PLACEMENT)),
        regions=packed(first_cells(rules, position, region_cells)),
        focus=jnp.where(acts & ~ended, state.focus, jnp.uint32(0)),
        player=player.astype(jnp.int8),
        phase=phase.astype(jnp.int8),
        can_skip=_can_skip(phase, player, could),
        has_acted=state.has_acted & ~ended,
        is_recovery=state.is_recovery & ~ended,
    )


def chosen(condition: Array, first: Cells, other: Cells) -> Cells:
    """The first set where the condition is True, the other one elsewhere."""
    return first.where(condition) | other.where(~condition)


def _following(rules: Rules, mover: Array, could: Options) -> Array:
    """The next player in the order of seats who has anything to decide, the mover the last of them."""
    decides = could.has_rings & (could.can_place | could.can_move | could.can_recover | could.has_stack)  # [P]
    return jnp.argmin(jnp.where(decides, _seats_after(rules, mover), rules.num_players)).astype(jnp.int32)


def _own_phase(
    rules: Rules, state: RingRiftState, position: Position, sets: Sets, could: Options, claims: Cells, after: Array
) -> Array:
    """The next decision of the mover in its turn; OVER if the turn has ended."""
    own = take(sets.control, state.player)
    is_stuck = ~(could.can_move | could.can_recover)[state.player]  # it skipped the placement, and can do nothing
    after = jnp.where((after == MOVEMENT) & is_stuck, LINE, after)
    focus = unpacked(state.focus)
    captures = (focus & own & could.found.can_capture).any()
    starts = line_starts(rules, position, state.player)
    payers = chosen(state.is_recovery, take(sets.owned, state.player), own)
    phase = jnp.where(~state.has_acted & own.any() & (after <= FORCED_ELIMINATION), FORCED_ELIMINATION, OVER)
    phase = jnp.where((after <= TERRITORY) & jnp.any(claims.any()), TERRITORY, phase)
    phase = jnp.where(after == TERRITORY_PAYMENT, TERRITORY_PAYMENT, phase)
    has_line = jnp.any((starts.whole | starts.segment).any())
    phase = jnp.where((after <= LINE_PAYMENT) & has_line, LINE, phase)
    completes = state.is_recovery & has_line  # the slide made a line, which is decided first
    phase = jnp.where((after == LINE_PAYMENT) & payers.any() & ~completes, LINE_PAYMENT, phase)
    phase = jnp.where(((after == CAPTURE) | (after == CHAIN)) & captures, after, phase)
    return jnp.where(after <= MOVEMENT, after, phase)


def _first_phase(could: Options, player: Array, claims: Cells) -> Array:
    """The first decision of a player's turn, who has one."""
    phase = jnp.where(jnp.any(claims.any()), TERRITORY, FORCED_ELIMINATION)
    phase = jnp.where(could.can_move[player] | could.can_recover[player], MOVEMENT, phase)
    return jnp.where(could.can_place[player], PLACEMENT, phase)


def _begun(rules: Rules, state: RingRiftState, could: Options, player: Array, begins: Array) -> RingRiftState:
    """With the count of turns in which only one player could act, at the start of the turn of `player`."""
    is_real = could.can_place[player] | could.can_move[player]
    waited = _seats_after(rules, state.player)
    is_passed = could.has_rings & (waited < waited[player])
    return endings.with_candidate(state, player, is_real, is_passed, begins)


def _seats_after(rules: Rules, mover: Array) -> Array:
    """[P] how many seats come before each one after the mover's turn; the mover is the last."""
    return (jnp.arange(rules.num_players) - mover.astype(jnp.int32) - 1) % rules.num_players


def _can_skip(phase: Array, player: Array, could: Options) -> Array:
    skips_placement = could.can_move[player] | could.may_recover[player]
    return (
        ((phase == PLACEMENT) & skips_placement)
        | ((phase == MOVEMENT) & could.can_recover[player])
        | (phase == CAPTURE)
        | (phase == TERRITORY)
    )
