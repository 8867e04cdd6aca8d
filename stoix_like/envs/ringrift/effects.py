"""What an action does to the board, before anybody asks who decides next."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.envs.ringrift.actions import PAIR, PAY, PLACE, REGION, SEGMENT, WHOLE
from stoix_like.envs.ringrift.sets import Cells
from stoix_like.envs.ringrift.state import (
    FORCED_ELIMINATION,
    TERRITORY_PAYMENT,
    Position,
    RingRiftState,
    Rules,
    Sets,
    take,
)
from stoix_like.envs.ringrift.territory import region_at
from stoix_like.types import Array


class Column(NamedTuple):
    """One stack as two integers, or none if its height is 0. Bits above the lowest ring are 0."""

    rings: Array  # [] uint32, the owners of the rings, two bits each from the top
    height: Array  # [] int32


class Act(NamedTuple):
    """An action with its cells as sets; those that an action does not have are empty."""

    kind: Array
    number: Array
    first: Cells
    last: Cells
    between: Cells


class Effects(NamedTuple):
    """The board after an action."""

    position: Position
    placed: Array  # [] int32, rings from the mover's hand
    eliminated: Array  # [] int32, rings credited to the mover
    is_capture: Array  # [] bool
    is_slide: Array  # [] bool: a marker recovered, by a slide or a strike


class _Pair(NamedTuple):
    """What a pair of cells means on this board."""

    moves: Array  # [] bool: a stack goes from the first to the last cell
    target: Cells  # the stack that it captures
    is_slide: Array  # [] bool: a marker goes
    is_strike: Array  # [] bool: it goes at a stack


def effects(rules: Rules, state: RingRiftState, position: Position, sets: Sets, act: Act) -> Effects:
    """The board after an action of the mover."""
    pair = _pair(sets, act)
    rings, eliminated = _rings(state, position, sets, act, pair)
    markers, collapsed = _moved_markers(state, position, act, pair)
    line = _line(position, state.player, act)
    region, border = region_at(rules, position, act.number, act.first.where(act.kind == REGION))
    claimed = line | region | border
    inside = jnp.sum((rings & region.at(None, None)).size())
    return Effects(
        Position(
            rings & ~region.at(None, None),
            markers & ~claimed.at(None),
            collapsed | _of(rules, state.player, claimed),
        ),
        placed=jnp.where(act.kind == PLACE, act.number, 0),
        eliminated=eliminated + inside,
        is_capture=pair.target.any(),
        is_slide=pair.is_slide,
    )


def _pair(sets: Sets, act: Act) -> _Pair:
    is_pair = act.kind == PAIR
    starts_with_stack = (act.first & sets.stacks).any()
    moves = is_pair & starts_with_stack
    is_slide = is_pair & ~starts_with_stack
    return _Pair(
        moves=moves,
        target=(act.between & sets.stacks).where(moves),
        is_slide=is_slide,
        is_strike=is_slide & (act.last & sets.stacks).any(),
    )


def _rings(state: RingRiftState, position: Position, sets: Sets, act: Act, pair: _Pair) -> tuple[Cells, Array]:
    """The rings [H, P] after it, and those eliminated one by one or as a cap."""
    shape = position.rings.words[0].shape
    leaves = act.first.where(pair.moves)
    changes = pair.target | act.last.where(pair.is_strike) | act.first.where((act.kind == PLACE) | (act.kind == PAY))
    changed = _read(position.rings, changes)
    is_capture = pair.target.any()
    after, paid = _changed(state, act, pair, changed, is_capture)
    moved = _with_bottom(_read(position.rings, leaves), _owner(changed), is_capture.astype(jnp.int32))
    on_marker = (pair.moves & (act.last & sets.marked).any()).astype(jnp.int32)
    landed = _popped(moved, on_marker)
    lands = act.last.where(pair.moves)
    rings = position.rings & ~(leaves | changes).at(None, None)
    rings = rings | _written(after, changes, shape) | _written(landed, lands, shape)
    return rings, paid + on_marker


def _changed(state: RingRiftState, act: Act, pair: _Pair, column: Column, is_capture: Array) -> tuple[Column, Array]:
    """The stack that is captured from, struck, placed on or paid with; and the rings that it lost for good."""
    is_cap = (state.phase == TERRITORY_PAYMENT) | (state.phase == FORCED_ELIMINATION)
    pays = act.kind == PAY
    extracts = pays & state.is_recovery
    count = jnp.where(pays & ~extracts, jnp.where(is_cap, _cap(column), 1), 0)
    count = jnp.where(is_capture | pair.is_strike, 1, count)
    less = _popped(column, count)
    extracted = _extracted(column, state.player)
    less = Column(*(jnp.where(extracts, a, b) for a, b in zip(extracted, less, strict=True)))
    paid = jnp.where(is_capture, 0, column.height - less.height)
    return _pushed(less, state.player, jnp.where(act.kind == PLACE, act.number, 0)), paid


def _moved_markers(state: RingRiftState, position: Position, act: Act, pair: _Pair) -> tuple[Cells, Cells]:
    """Markers and territory [P] after a pair of cells; both as they were after anything else."""
    is_mover = jnp.arange(position.markers.words[0].shape[0]) == state.player  # [P]
    passed = act.between.where(pair.moves)
    own = take(position.markers, state.player)
    flipped = passed & position.markers.union(0) & ~own
    gone = passed | act.last.where(pair.moves) | act.first.where(pair.is_slide)
    added = flipped | act.first.where(pair.moves) | act.last.where(pair.is_slide & ~pair.is_strike)
    markers = (position.markers & ~gone.at(None)) | added.at(None).where(is_mover)
    return markers, position.collapsed | (passed & own).at(None).where(is_mover)


def _line(position: Position, player: Array, act: Act) -> Cells:
    """The cells of a line that is collapsed, whole or in part."""
    ray = act.between.where((act.kind == WHOLE) | (act.kind == SEGMENT))
    return ray & (ray & ~take(position.markers, player)).below()


def _of(rules: Rules, player: Array, cells: Cells) -> Cells:
    """[P]: the cells for one player, none for the others."""
    return cells.at(None).where(jnp.arange(rules.num_players) == player)


def _read(rings: Cells, at: Cells) -> Column:
    """The stack on the only cell of a set; none if there is no stack, or no cell. `rings` [H, P]."""
    present = (rings & at.at(None, None)).any()  # [H, P]
    height, players = present.shape
    levels, owners = 2 * jnp.arange(height, dtype=jnp.uint32)[:, None], jnp.arange(players, dtype=jnp.uint32)[None]
    codes = jnp.where(present, owners << levels, jnp.uint32(0))
    return Column(jnp.bitwise_or.reduce(codes.reshape(-1)), jnp.sum(present, dtype=jnp.int32))


def _written(column: Column, at: Cells, shape: tuple[int, ...]) -> Cells:
    """The rings [H, P] of a stack on the only cell of a set."""
    height, players = shape
    levels = jnp.arange(height)[:, None]
    owners = (column.rings >> (2 * levels).astype(jnp.uint32)) & 3  # [H, 1]
    present = (levels < column.height) & (owners == jnp.arange(players, dtype=jnp.uint32)[None])  # [H, P]
    return Cells(tuple(jnp.where(present, word, jnp.uint32(0)) for word in at.words))


def _owner(column: Column) -> Array:
    """The owner of the top ring."""
    return (column.rings & 3).astype(jnp.int32)


def _pushed(column: Column, player: Array, count: Array) -> Column:
    """With `count` rings of a player on top, at most three."""
    rings = column.rings
    for index in range(3):
        rings = jnp.where(index < count, (rings << 2) | player.astype(jnp.uint32), rings)
    return Column(rings, column.height + count)


def _popped(column: Column, count: Array) -> Column:
    """Without the `count` rings on top."""
    return Column(column.rings >> (2 * count).astype(jnp.uint32), column.height - count)


def _with_bottom(column: Column, player: Array, count: Array) -> Column:
    """With a ring of a player below all others if `count` is 1."""
    ring = player.astype(jnp.uint32) << (2 * column.height).astype(jnp.uint32)
    return Column(column.rings | jnp.where(count > 0, ring, jnp.uint32(0)), column.height + count)


def _cap(column: Column) -> Array:
    """Rings from the top that are the controller's."""
    others = column.rings ^ _repeated(_owner(column))
    others = (others | (others >> 1)) & jnp.uint32(0x55555555)  # the lower bit of each ring of somebody else
    return jnp.minimum(_low_zeros(others) // 2, column.height)


def _extracted(column: Column, player: Array) -> Column:
    """Without the lowest ring of a player, who has one."""
    others = column.rings ^ _repeated(player)
    own = ~(others | (others >> 1)) & jnp.uint32(0x55555555) & _below(2 * column.height)
    place = 31 - jax.lax.clz(own).astype(jnp.int32)  # of the lower bit
    above = _below(place)
    rings = (column.rings & above) | ((column.rings >> 2) & ~above)
    return Column(rings, column.height - 1)


def _repeated(player: Array) -> Array:
    return player.astype(jnp.uint32) * jnp.uint32(0x55555555)


def _below(place: Array) -> Array:
    return (jnp.uint32(1) << place.astype(jnp.uint32)) - 1


def _low_zeros(word: Array) -> Array:
    """The zeros below the lowest bit; 32 of 0."""
    return jax.lax.population_count((word & -word) - 1).astype(jnp.int32)
