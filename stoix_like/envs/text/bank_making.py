"""Makes banks, in NumPy: the levels of each world as SPA's environments draw them (arXiv 2510.15047, in RAGEN)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config.checks.values import nearest
from stoix_like.envs.text import reverse_search
from stoix_like.envs.text.banks import Bank, are_held_out
from stoix_like.envs.text.frozen_lake import make_frozen_lake
from stoix_like.envs.text.grids import LAKE_MOVES, Lake, Position, Room
from stoix_like.envs.text.sokoban import make_sokoban
from stoix_like.envs.text.sudoku import SIZE, make_sudoku, solutions
from stoix_like.errors import ConfigError
from stoix_like.types import Environment

_BATCH = 256  # levels that are told apart at a time
_MOST_IN_VAIN = 2_048  # draws in turn that give no new level before a bank is given up


class LevelMaker(NamedTuple):
    """How the levels of a world are made.

    Attributes:
        make_env: its environment; its defaults are those of the rules.
        rules: the names of the arguments on which levels depend.
        draw: (generator, **rules) -> a level with arrays of NumPy, or None if what was drawn cannot be played.
        level: a level, for its fields.
    """

    make_env: Callable[..., Environment]
    rules: tuple[str, ...]
    draw: Callable[..., Any]
    level: Any


def make_bank(task_id: str, num_levels: int, seed: int, kwargs: Mapping[str, Any] | None = None) -> Bank:
    """A bank of so many levels, half of them of training and half of evaluation, no two of them alike.

    Args:
        task_id: one of `LEVEL_MAKERS`.
        num_levels: how many, an even number.
        seed: of NumPy's generator.
        kwargs: arguments of the environment on which levels depend, such as {"num_boxes": 2}.

    Raises:
        ConfigError: another task, other arguments, or too few levels that can be played.
    """
    maker, rules = _checked(task_id, num_levels, dict(kwargs or {}))
    rng, most = np.random.default_rng(seed), num_levels // 2
    halves: tuple[dict[bytes, Any], dict[bytes, Any]] = ({}, {})  # of training, of evaluation
    drawn_in_vain = 0
    while (num_found := sum(map(len, halves))) < num_levels and drawn_in_vain < _MOST_IN_VAIN:
        _add(halves, [level for _ in range(_BATCH) if (level := maker.draw(rng, **rules)) is not None], most)
        drawn_in_vain = 0 if sum(map(len, halves)) > num_found else drawn_in_vain + _BATCH
    if num_found < num_levels:
        part, found = min(("training", len(halves[0])), ("evaluation", len(halves[1])), key=lambda half: half[1])
        raise ConfigError(
            f"num_levels: {found:,} of {most:,} levels of {part} were found, and {_MOST_IN_VAIN:,} draws gave no more",
            "ask for fewer, or for another size",
        )
    return Bank(task_id, rules, seed, _stacked([*halves[0].values(), *halves[1].values()]))


def _add(halves: tuple[dict[bytes, Any], ...], levels: list[Any], most: int) -> None:
    """Adds levels to the half to which each belongs, unless it is there or the half has `most`."""
    if not levels:
        return
    for level, held_out in zip(levels, are_held_out(_stacked(levels)), strict=True):
        half = halves[int(held_out)]
        if len(half) < most:
            half.setdefault(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(level)), level)


def _checked(task_id: str, num_levels: int, kwargs: dict[str, Any]) -> tuple[LevelMaker, dict[str, Any]]:
    """(how its levels are made, all rules as plain numbers). Raises ConfigError if one of them cannot be."""
    if task_id not in LEVEL_MAKERS:
        raise ConfigError(
            f"there are no banks of '{task_id}'{nearest(task_id, LEVEL_MAKERS)}", f"tasks: {', '.join(LEVEL_MAKERS)}"
        )
    maker = LEVEL_MAKERS[task_id]
    if num_levels < 2 or num_levels % 2:
        raise ConfigError(f"num_levels: must be an even number from 2 on, got {num_levels}", "half are for evaluation")
    if unknown := [str(name) for name in kwargs if name not in maker.rules]:
        raise ConfigError(
            f"environment.kwargs: the levels of {task_id} do not depend on {', '.join(unknown)}",
            f"they depend on {', '.join(maker.rules)}",
        )
    defaults = {name: inspect.signature(maker.make_env).parameters[name].default for name in maker.rules}
    try:
        rules = {name: type(default)(kwargs.get(name, default)) for name, default in defaults.items()}
    except (TypeError, ValueError) as error:
        raise ConfigError(f"environment.kwargs: numbers are expected, got {kwargs}: {error}", "change it") from error
    if rounded := [name for name, value in kwargs.items() if rules[name] != value]:
        raise ConfigError(
            f"environment.kwargs: {rounded[0]} must be a whole number, got {kwargs[rounded[0]]}", "change it"
        )
    maker.make_env(**rules)  # raises what it refuses
    return maker, rules


def _stacked(levels: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *levels)


def draw_lake(rng: np.random.Generator, size: int, frozen_p: float, max_actions: int) -> Lake | None:
    """A lake with its start and goal anywhere; None without a way of at most `max_actions` moves."""
    start, goal = rng.choice(size**2, 2, replace=False)
    holes = rng.random(size**2) >= frozen_p
    holes[[start, goal]] = False
    lake = Lake(holes.reshape(size, size), *(Position(*np.divmod(np.int32(cell), size)) for cell in (start, goal)))
    reached = {(int(lake.start.row), int(lake.start.col))}
    for _ in range(max_actions):
        reached |= {
            (row + down, column + right)
            for row, column in reached
            for down, right in LAKE_MOVES.tolist()
            if 0 <= row + down < size and 0 <= column + right < size and not lake.holes[row + down, column + right]
        }
    return lake if (int(lake.goal.row), int(lake.goal.col)) in reached else None


def draw_puzzle(rng: np.random.Generator, num_empty: int) -> np.ndarray | None:
    """[4, 4] int8, 0 where empty: cells are emptied in random order as long as one solution is left.

    None if fewer than `num_empty` can be.
    """
    cells, emptied = rng.choice(solutions()).copy(), 0
    for cell in rng.permutation(SIZE**2):
        number, cells.flat[cell] = cells.flat[cell], 0
        if ((cells == 0) | (solutions() == cells)).all(axis=(1, 2)).sum() == 1:
            emptied += 1
        else:
            cells.flat[cell] = number
        if emptied == num_empty:
            return cells
    return None


_CELL = Position(0, 0)
LEVEL_MAKERS: dict[str, LevelMaker] = {
    "FrozenLake-text-v0": LevelMaker(
        make_frozen_lake, ("size", "frozen_p", "max_actions"), draw_lake, Lake(0, _CELL, _CELL)
    ),
    "Sokoban-text-v0": LevelMaker(
        make_sokoban, ("num_rows", "num_cols", "num_boxes"), reverse_search.draw_room, Room(0, 0, 0, _CELL)
    ),
    "Sudoku-text-v0": LevelMaker(make_sudoku, ("num_empty",), draw_puzzle, 0),
}
