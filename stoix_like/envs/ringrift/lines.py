"""Lines of markers: which can be collapsed, and which slides of a marker complete one."""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.envs.ringrift.sets import Cells, ahead, nothing
from stoix_like.envs.ringrift.state import Position, Rules, Sets, take
from stoix_like.types import Array


class LineStarts(NamedTuple):
    """The first cells of what can be collapsed, by axis."""

    whole: Cells  # [axes], of whole lines
    segment: Cells  # [axes], of parts of longer lines that have the length of a line


class Slides(NamedTuple):
    """Markers that can recover, by direction: to complete a line or, if nobody's slide does, otherwise."""

    to_lines: Cells  # [P, D]
    to_empty: Cells  # [P, D], fallback
    strikes: Cells  # [P, D], fallback: at the stack beside the marker


def line_starts(rules: Rules, position: Position, player: Array) -> LineStarts:
    """The lines of a player."""
    axes = rules.board.num_axes
    markers = take(position.markers, player).at(None)  # [1]
    runs = _runs(rules, markers, rules.line_length + 1)
    line = runs[rules.line_length - 1].at(slice(0, axes)) & markers
    longer = runs[rules.line_length].at(slice(0, axes)) & markers
    follows = ahead(rules.ahead, markers).at(slice(axes, 2 * axes))  # a marker stands behind, too
    return LineStarts(line & ~follows, line & (follows | longer))


def _runs(rules: Rules, markers: Cells, count: int) -> list[Cells]:
    """By length from 0 on: the cells that have at least so many markers ahead, sets [..., D] of sets [..., 1].

    So a line of n markers starts at a marker with n - 1 ahead.
    """
    found = [~nothing(markers)]
    for _ in range(count):
        found.append(ahead(rules.ahead, markers & found[-1]))
    return found


def may_recover(position: Position, sets: Sets) -> Array:
    """[P] bool: who controls no stack, and has a marker and a buried ring."""
    return position.markers.any() & ~sets.control.any() & sets.buried.any()


def recoveries(rules: Rules, position: Position, sets: Sets) -> Slides:
    """What each player who may recover could do. There may be nothing to do."""
    may = may_recover(position, sets)[:, None]  # [P, 1]
    markers = position.markers.at(slice(None), None)  # [P, 1]
    sources = markers.where(may)
    completes = _completes(rules, markers) & sets.empty.at(None, None)
    to_lines = sources & ahead(rules.ahead, completes)
    may_fall_back = ~jnp.any(to_lines.any(), axis=1, keepdims=True)  # [P, 1]
    fallback = sources.where(may_fall_back)
    to_empty = fallback & ahead(rules.ahead, sets.empty.at(None, None))
    strikes = fallback & ahead(rules.ahead, sets.stacks.at(None, None))
    return Slides(to_lines, to_empty, strikes)


def can_recover(slides: Slides) -> Array:
    """[P] bool."""
    return jnp.any((slides.to_lines | slides.to_empty | slides.strikes).any(), axis=1)


def _completes(rules: Rules, markers: Cells) -> Cells:
    """The cells where a marker that comes in a direction completes a line, [P, D].

    On the axis of the slide only markers ahead count, as it leaves the cell behind; on the others those of both sides.
    """
    axes, length = rules.board.num_axes, rules.line_length
    runs = _runs(rules, markers, length - 1)
    sides = [(run.at(..., slice(0, axes)), run.at(..., slice(axes, None))) for run in runs[1:]]
    joined = [sides[count - 1][0] & sides[length - 2 - count][1] for count in range(1, length - 1)]
    on_axis = functools.reduce(Cells.__or__, [*sides[-1], *joined])  # [P, axes]
    by_axis = [on_axis.at(..., slice(axis, axis + 1)) for axis in range(axes)]
    on_two = functools.reduce(Cells.__or__, [a & b for a, b in itertools.combinations(by_axis, 2)])
    others = on_two | (functools.reduce(Cells.__or__, by_axis) & ~on_axis)  # on another axis than this
    return runs[length - 1] | Cells(tuple(jnp.tile(word, 2) for word in others.words))
