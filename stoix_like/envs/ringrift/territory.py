"""Regions: what hangs together between markers of one colour, collapsed cells and the edge.

Colours are 0 to P - 1, and P for regions that no marker bounds. Nothing here labels regions: sets of cells are flooded
from all stacks of a player at once, and a region is known by the floods that hold it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.envs.ringrift.sets import Cells, all_cells, nothing, shift, stacked
from stoix_like.envs.ringrift.state import Position, Rules, Sets
from stoix_like.types import Array

_ROUNDS = 3  # steps of a flood between two questions whether it has ended


class Claimant(NamedTuple):
    """Who may claim, with the cells that could pay: its own stacks, or after a recovery all that hold rings of it."""

    player: Array
    payers: Cells  # []


def open_by_colour(rules: Rules, position: Position) -> Cells:
    """[P + 1] the cells of the regions of each colour: all but collapsed ones and markers of this colour."""
    free = all_cells(rules.board) & ~position.collapsed.union(0)
    return Cells(
        tuple(jnp.append(word & ~marker, word) for word, marker in zip(free.words, position.markers.words, strict=True))
    )


def flooded(rules: Rules, seeds: Cells, open_cells: Cells) -> Cells:
    """All open cells that hang together with the seeds across the sides of cells."""
    shape = jnp.broadcast_shapes(seeds.words[0].shape, open_cells.words[0].shape)
    # one axis, so that the sets of a board are computed side by side
    open_cells = Cells(tuple(jnp.broadcast_to(word, shape).reshape(-1) for word in open_cells.words))
    start = Cells(tuple(jnp.broadcast_to(word, shape).reshape(-1) for word in seeds.words)) & open_cells

    def spread(cells: Cells) -> Cells:
        for _ in range(_ROUNDS):
            cells = open_cells & functools.reduce(Cells.__or__, [cells, *beside(rules, cells)])
        return cells

    def is_growing(carry: tuple[Cells, Cells]) -> Array:
        return jnp.any((carry[0] ^ carry[1]).any())

    found = jax.lax.while_loop(is_growing, lambda carry: (carry[1], spread(carry[1])), (start, spread(start)))[1]
    return Cells(tuple(word.reshape(shape) for word in found.words))


def beside(rules: Rules, cells: Cells) -> list[Cells]:
    """The cells across each side of some."""
    return [shift(rules.board, cells, direction) for direction in rules.board.sides]


def claimable(rules: Rules, position: Position, sets: Sets, claimants: list[Claimant]) -> list[Cells]:
    """[P + 1] by colour: the cells of all regions that each claimant may claim.

    Not all players with rings on the board control a stack within, and the claimant can pay from outside. The region
    of a colour is touched by a marker of it.
    """
    colours = open_by_colour(rules, position)
    seeds = [sets.control.at(player) for player in range(rules.num_players)]
    for claimant in claimants:
        seeds += [claimant.payers, claimant.payers.lowest()]
    touched = functools.reduce(Cells.__or__, beside(rules, position.markers))  # [P]
    full = Cells(tuple(jnp.append(word, jnp.uint32(0xFFFFFFFF)) for word in touched.words))
    sources = [Cells(tuple(jnp.broadcast_to(word, (rules.num_players + 1,)) for word in seed.words)) for seed in seeds]
    lanes = stacked([*sources, full])
    floods = flooded(rules, lanes, colours.at(None))  # [lanes, P + 1]
    lacks = ~floods.at(slice(0, rules.num_players))  # [P, P + 1]
    is_subset = lacks.where(sets.owned.any()[:, None]).union(0)  # somebody with rings is not within
    bounded = floods.at(-1) & is_subset
    found = []
    for index, claimant in enumerate(claimants):
        within = floods.at(rules.num_players + 2 * index)  # [P + 1]
        with_lowest = floods.at(rules.num_players + 2 * index + 1)
        is_split = (claimant.payers.at(None) & ~with_lowest).any()  # payers in more than one region
        pays = ~within | (~nothing(within)).where(is_split)
        found.append((bounded & pays).where(claimant.payers.any()))
    return found


def first_cells(rules: Rules, position: Position, cells: Cells) -> Cells:
    """[P + 1] by colour: the lowest cell of each of these regions, which names it."""
    colours = open_by_colour(rules, position)

    def strike_off(carry: tuple[Cells, Cells]) -> tuple[Cells, Cells]:
        rest, found = carry
        lowest = rest.lowest()
        return rest & ~flooded(rules, lowest, colours), found | lowest

    return jax.lax.while_loop(lambda carry: jnp.any(carry[0].any()), strike_off, (cells, nothing(cells)))[1]


def region_at(rules: Rules, position: Position, colour: Array, first: Cells) -> tuple[Cells, Cells]:
    """The region of a colour around a cell, and the markers of this colour that touch it."""
    is_colour = jnp.arange(rules.num_players + 1) == colour
    region = flooded(rules, first, open_by_colour(rules, position).where(is_colour).union(0))
    markers = position.markers.where(is_colour[:-1]).union(0)
    return region, markers & functools.reduce(Cells.__or__, beside(rules, region))
