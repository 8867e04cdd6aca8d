"""Moves and captures, in closed form: from every cell at once, one step further at a time.

A stack of height h moves any distance from h on over open cells. It captures the first stack ahead if its cap is at
least as high, and lands behind that, again at a distance from h on and over open cells.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from stoix_like.envs.ringrift.boards import MAX_PLACED
from stoix_like.envs.ringrift.sets import Cells, ahead, nothing, stacked
from stoix_like.envs.ringrift.state import Position, Rules, Sets
from stoix_like.types import Array


class Stacks(NamedTuple):
    """Heights and caps of stacks by cell, as sets with any axes."""

    at_most: list[Cells]  # by distance from 1 on: stacks whose height is at most that
    cap: list[Cells]  # binary digits of the height of the cap, the lowest first


class Reach(NamedTuple):
    """Where stacks can go, by direction in the last axis."""

    moves: list[Cells]  # by distance from 1 on: the cells from which a move of that length is possible
    captures: list[Cells]


class Mobility(NamedTuple):
    """Who can do what, and where."""

    can_move: Cells  # [], stacks that have a move
    can_capture: Cells  # [], stacks that have a capture
    places: Cells  # [P, 3], cells where a player may place one to three rings, whatever it has in hand


def at_least(position: Position) -> list[Cells]:
    """Stacks of at least 1, 2, … H rings."""
    present = position.rings.union(1)  # [H]
    return [present.at(level) for level in range(present.words[0].shape[0])]


def caps_at_least(position: Position) -> list[Cells]:
    """Stacks with a cap of at least 1, 2, … H rings."""
    rings, found = position.rings, []
    run = rings.at(0)  # [P]
    for level in range(rings.words[0].shape[0]):
        run = run if level == 0 else run & rings.at(level)
        found.append(run.union(0))
    return found


def digits(counts: list[Cells]) -> list[Cells]:
    """The binary digits of how many of the sets hold a cell, if each set lies in the one before it."""
    found, step = [], 1
    while step <= len(counts):
        found.append(functools.reduce(lambda a, b: a ^ b, counts[step - 1 :: step]))
        step *= 2
    return found


def stacks_of(rules: Rules, position: Position) -> Stacks:
    """The stacks as they are."""
    heights = at_least(position)
    at_most = [heights[0] & ~heights[distance] for distance in range(1, rules.board.max_distance + 1)]
    return Stacks(at_most, digits(caps_at_least(position)))


def reach(rules: Rules, sets: Sets, target_caps: list[Cells], stacks: Stacks) -> Reach:
    """Where `stacks`, with axes [...], could go on a board with such open cells and targets: sets [..., D]."""
    own = [digit.at(..., None) for digit in stacks.cap]  # [..., 1]
    axes = (None,) * own[0].words[0].ndim
    open_ahead, caps_ahead = sets.open.at(*axes), [digit.at(*axes) for digit in target_caps]  # 1 each, then [..., D]
    has_passed = nothing(open_ahead)
    is_clear = ~has_passed
    moves, captures = [], []
    for at_most in stacks.at_most:
        open_ahead = ahead(rules.ahead, open_ahead)
        caps_ahead = [ahead(rules.ahead, digit) for digit in caps_ahead]
        far_enough = at_most.at(..., None)
        moves.append(is_clear & open_ahead & far_enough)
        captures.append(has_passed & open_ahead & far_enough)
        is_stack = functools.reduce(Cells.__or__, caps_ahead)
        target = is_clear & is_stack & ~_is_less(own, caps_ahead)
        has_passed = (has_passed & open_ahead) | target
        is_clear = is_clear & open_ahead
    return Reach(moves, captures)


def _is_less(left: list[Cells], right: list[Cells]) -> Cells:
    """Cells where the number with the digits `left` is less than that of `right`."""
    less = ~left[0] & right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        less = (~a & b) | (~(a ^ b) & less)
    return less


def mobility(rules: Rules, position: Position, sets: Sets) -> Mobility:
    """Who can move, capture and place. A ring may be placed only where the stack can go on afterwards."""
    stacks = stacks_of(rules, position)
    found = reach(rules, sets, stacks.cap, _supposed(rules, position, sets, stacks))  # [P + 1, D]
    can_move = functools.reduce(Cells.__or__, found.moves).union(-1)  # [P + 1]
    can_capture = functools.reduce(Cells.__or__, found.captures).union(-1)
    lives = can_move | can_capture
    by_count = [lives.at(lane) & sets.empty for lane in _LANE_OF_COUNT]
    places = [
        [by_count[0] | (lives.at(player + 1) & sets.stacks), by_count[1], by_count[2]]
        for player in range(rules.num_players)
    ]
    words = zip(*(cells.words for row in places for cells in row), strict=True)
    shape = (rules.num_players, MAX_PLACED)
    return Mobility(
        can_move.at(0) & sets.stacks,
        can_capture.at(0) & sets.stacks,
        Cells(tuple(jnp.stack(word).reshape(shape) for word in words)),
    )


#: Of one, two and three rings on an empty cell: the lane in which they are supposed.
_LANE_OF_COUNT = (1, 0, 2)


def _supposed(rules: Rules, position: Position, sets: Sets, stacks: Stacks) -> Stacks:
    """What might stand on each cell, [P + 1]. Lane 0: the stacks, and two rings on empty cells. Lane p + 1: the stacks
    with a ring of p on top, and on empty cells one ring (p = 0) or three (p = 1)."""
    caps = caps_at_least(position)
    counts = [2, 1, 3] + [0] * (rules.num_players - 2)  # rings on empty cells
    at_most = []
    for distance in range(1, rules.board.max_distance + 1):
        higher = stacks.at_most[distance - 2] if distance > 1 else None
        lanes = [_with(stacks.at_most[distance - 1], sets.empty, counts[0] <= distance)]
        lanes += [_with(higher, sets.empty, 0 < count <= distance) for count in counts[1:]]
        at_most.append(stacked(lanes))
    cap_lanes = [stacks.cap] + [
        digits([sets.stacks] + [sets.control.at(player) & cells for cells in caps[:-1]])
        for player in range(rules.num_players)
    ]
    cap = [
        stacked(
            [
                _with(lane[place], sets.empty, count >> place & 1 == 1)
                for lane, count in zip(cap_lanes, counts, strict=True)
            ]
        )
        for place in range(len(stacks.cap))
    ]
    return Stacks(at_most, cap)


def _with(cells: Cells | None, empty: Cells, has_empty: bool) -> Cells:
    if cells is None:
        return empty if has_empty else nothing(empty)
    return cells | empty if has_empty else cells


def movable(found: Mobility, sets: Sets) -> Array:
    """[P] bool: who controls a stack that can move or capture."""
    return (sets.control & (found.can_move | found.can_capture).at(None)).any()


def placeable(found: Mobility, hand: Array) -> Cells:
    """[P, 3]: where each player may place one to three of the rings in its hand, [P]."""
    has_rings = hand[:, None] >= np.arange(1, MAX_PLACED + 1)[None]
    return found.places.where(has_rings)
