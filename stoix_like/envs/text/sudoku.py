"""Sudoku of 4 by 4 cells with one solution. A number that breaks a row, a column or a box is not taken.

Rules and reward are those of SPA's environment (arXiv 2510.15047, in RAGEN): 1 when the grid is full and right.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.text.banks import Bank, make_resets
from stoix_like.envs.text.levels import draw_until, is_held_out
from stoix_like.envs.text.oracles import Turns, sudoku_ceiling
from stoix_like.errors import ConfigError
from stoix_like.types import FIRST, LAST, MID, ActionSpec, Array, Environment, Key, Observation, TimeStep

SIZE, NUM_GRIDS = 4, 288  # cells of a side; filled grids that are right


class SudokuState(NamedTuple):
    """A puzzle that is being filled in."""

    given: Array  # [4, 4] bool, cells that belong to the puzzle
    cells: Array  # [4, 4] int8, 0 where empty
    num_actions: Array  # [] int32 since the reset


def make_sudoku(num_empty: int = 6, max_actions: int = 30, bank: Bank | None = None) -> Environment:
    """Sudoku with `num_empty` empty cells. Action `4 * cell + number - 1` writes a number into a cell not given.

    Args:
        num_empty: cells to fill, at most 10.
        max_actions: the limit. It belongs to the task: the steps made are in the observation, and the end is one.
        bank: puzzles that were made before, with as many empty cells. By default each reset draws one from its key.

    Raises:
        ConfigError: a number out of its range.
    """
    if not 1 <= num_empty <= 10:
        raise ConfigError(
            f"environment.kwargs.num_empty: must be from 1 to 10, got {num_empty}",
            "the paper's is 6; of puzzles with more empty cells too few have one solution to be drawn",
        )
    if max_actions < num_empty:
        raise ConfigError(
            f"environment.kwargs.max_actions: {max_actions} are too few for {num_empty} empty cells", "raise it"
        )
    reset, held_out = make_resets(functools.partial(_reset, max_actions), functools.partial(_drawn, num_empty), bank)
    return Environment(
        reset,
        functools.partial(_step, max_actions),
        ActionSpec(SIZE**3),
        task_id="Sudoku-text-v0",
        deterministic=True,
        episode_metrics=lambda state, _: {"solve_rate": _is_solved(state).astype(jnp.float32)},
        rekey=lambda state, _: state,
        time_limit=max_actions,
        held_out=held_out,
        render=_render,
        ceiling=lambda state, budget=None: sudoku_ceiling(
            int((~state.given).sum()), Turns.of_budget(budget, max_actions)
        ),
        bank_hash=None if bank is None else bank.hash,
    )


def _drawn(num_empty: int, held_out: bool, key: Key) -> Array:
    def draw(key: Key) -> Array:
        grid_key, cells_key = jax.random.split(key)
        grid = jnp.asarray(solutions())[jax.random.randint(grid_key, (), 0, NUM_GRIDS)]
        order = jax.random.permutation(cells_key, SIZE**2).reshape(SIZE, SIZE)
        return jnp.where(order < num_empty, 0, grid).astype(jnp.int8)

    return draw_until(draw, lambda cells: has_one_solution(cells) & (is_held_out(cells) == held_out), key)


def _reset(max_actions: int, draw: Callable[[Key], Array], key: Key) -> tuple[SudokuState, TimeStep]:
    cells = draw(key)
    state = SudokuState(cells > 0, cells, jnp.int32(0))
    return state, _timestep(state, jnp.int8(FIRST), max_actions)


def _step(max_actions: int, state: SudokuState, action: Array) -> tuple[SudokuState, TimeStep]:
    row, column, number = action // 16, action // 4 % 4, action % 4 + 1
    written = state.cells.at[row, column].set(number.astype(jnp.int8))
    takes = ~state.given[row, column] & _is_allowed(state.cells, row, column, number)
    state = SudokuState(state.given, jnp.where(takes, written, state.cells), state.num_actions + 1)
    is_end = _is_solved(state) | (state.num_actions >= max_actions)
    return state, _timestep(state, jnp.where(is_end, LAST, MID).astype(jnp.int8), max_actions)


@functools.cache
def solutions() -> np.ndarray:
    """[288, 4, 4] int8: every filled grid with each number once in all rows, columns and boxes."""
    rows = list(itertools.permutations(range(1, SIZE + 1)))
    found = [grid for grid in itertools.product(rows, repeat=SIZE) if _is_right(np.array(grid))]
    return np.array(found, np.int8)


def _is_right(grid: np.ndarray) -> bool:
    boxes = grid.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(SIZE, SIZE)
    return all(len(set(unit)) == SIZE for units in (grid.T, boxes) for unit in units.tolist())


def has_one_solution(cells: Array) -> Array:
    """[] bool, of cells [4, 4] with 0 where empty: exactly one of the filled grids agrees with them."""
    agrees = jnp.all((cells == 0)[None] | (jnp.asarray(solutions()) == cells[None]), axis=(1, 2))
    return agrees.sum() == 1


def _is_allowed(cells: Array, row: Array, column: Array, number: Array) -> Array:
    """[] bool: whether no other cell of the same row, column or box has the number."""
    rows, columns = jnp.arange(SIZE)[:, None], jnp.arange(SIZE)[None]
    same_box = (rows // 2 == row // 2) & (columns // 2 == column // 2)
    seen = ((rows == row) | (columns == column) | same_box) & ~((rows == row) & (columns == column))
    return ~jnp.any(seen & (cells == number))


def _is_solved(state: SudokuState) -> Array:
    return jnp.all(state.cells > 0)  # no number that breaks a rule is ever taken


def _timestep(state: SudokuState, step_type: Array, max_actions: int) -> TimeStep:
    view = {
        "cells": jax.nn.one_hot(state.cells, SIZE + 1),  # [4, 4, 5]
        "given": state.given.astype(jnp.float32),
        "actions_left": (max_actions - state.num_actions).astype(jnp.float32) / max_actions,
    }
    mask = jnp.broadcast_to(~state.given[..., None], (SIZE, SIZE, SIZE)).reshape(-1)
    reward = _is_solved(state).astype(jnp.float32)
    return TimeStep(step_type, reward, (step_type != LAST).astype(jnp.float32), Observation(view, mask), {})


def _render(state: SudokuState) -> str:
    """The board in RAGEN's symbols and the list of its empty cells, counted from 1."""
    cells = np.asarray(state.cells)
    symbols = np.where(cells > 0, cells.astype(str), ".")
    halves = [[" ".join(row[:2]), " ".join(row[2:])] for row in symbols]
    board = "\n".join(f"| {left} | {right} |" for left, right in halves)
    empty = ", ".join(f"({row + 1},{column + 1})" for row, column in np.argwhere(cells == 0))
    return f"{board}\nEmpty cells: {empty or 'none'}."
