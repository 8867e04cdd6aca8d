"""Jumanji's random mazes, made several times faster in batches; every bit stays the same.

Jumanji splits chambers by walls with one passage, the last found first, until none is wider and higher than one cell.
Under `vmap` both branches of every split run, and each draws its wall cell by cell. Here a wall is one comparison over
the grid, a split is turned by a select instead of written twice, and the random words of several splits are drawn
before the splits, as they depend on the key alone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jumanji.environments.routing.maze.generator import RandomGenerator
from jumanji.environments.routing.maze.types import Position, State

from stoix_like.ops import threefry
from stoix_like.types import Array, Key

SPLITS_PER_BLOCK = 6  # a maze of 10 x 10 took 9 to 17 in 20,000 of them


class FastMazeGenerator(RandomGenerator):
    """`jumanji.environments.routing.maze.generator.RandomGenerator` with the same mazes, bit for bit."""

    def __call__(self, key: Key) -> State:
        """The same state as Jumanji's. A key of another kind than `threefry.is_threefry` goes to Jumanji's code."""
        if not threefry.is_threefry(key):
            return super().__call__(key)
        key, maze_key, cells_key = jax.random.split(key, 3)
        walls = make_walls(self.num_rows, self.num_cols, maze_key)
        agent, target = _two_cells(~walls.reshape(-1), cells_key)
        return State(
            agent_position=Position(*jnp.divmod(agent, self.num_cols)),
            target_position=Position(*jnp.divmod(target, self.num_cols)),
            walls=walls,
            action_mask=None,
            key=key,
            step_count=jnp.int32(0),
        )


class _Splitting(NamedTuple):
    walls: Array  # [R, C] bool
    chambers: Array  # [D, 4] int32: x, y, width, height; a stack
    num_chambers: Array  # [] int32, of the stack
    key: threefry.Words


def make_walls(num_rows: int, num_cols: int, key: Key) -> Array:
    """[R, C] bool: the cells that `maze_generation.generate_maze` makes walls."""
    # A chamber that waits below the top is at least 3 long where it was split off, and its wall is 1: 4 each.
    most_waiting = (num_rows + num_cols) // 4 + 1
    whole = jnp.array([0, 0, num_cols, num_rows], jnp.int32)
    chambers = jnp.zeros((most_waiting, 4), jnp.int32).at[0].set(whole)
    start = _Splitting(jnp.zeros((num_rows, num_cols), bool), chambers, jnp.int32(1), threefry.words(key))
    return lax.while_loop(lambda maze: maze.num_chambers > 0, _split_some, start).walls


def _split_some(maze: _Splitting) -> _Splitting:
    key, drawn = _draw(maze.key)
    maze, _ = lax.scan(lambda maze, drawn: (_split_top(maze, *drawn), None), maze, drawn)
    return maze._replace(key=key)


def _draw(key: threefry.Words) -> tuple[threefry.Words, tuple[threefry.Words, threefry.Words]]:
    """(next key, words for the wall and the passage of each split of a block [K])."""

    def advance(key: threefry.Words, _: None) -> tuple[threefry.Words, list[threefry.Words]]:
        key, *of_split = threefry.split(key, 3)
        return key, of_split

    key, (wall_key, passage_key) = lax.scan(advance, key, length=SPLITS_PER_BLOCK)
    return key, (threefry.randint_words(wall_key), threefry.randint_words(passage_key))


def _split_top(maze: _Splitting, wall_words: threefry.Words, passage_words: threefry.Words) -> _Splitting:
    """The maze with the last chamber split across its longer side, or as it is if there is none."""
    is_open = maze.num_chambers > 0
    top = jnp.maximum(maze.num_chambers - 1, 0)
    x, y, width, height = maze.chambers[top]
    is_wide = width >= height
    length, breadth = jnp.where(is_wide, width, height), jnp.where(is_wide, height, width)
    before = 2 * threefry.below(wall_words, length // 2) + 1
    passage = 2 * threefry.below(passage_words, (breadth + 1) // 2)

    row, column = jnp.arange(maze.walls.shape[0])[:, None] - y, jnp.arange(maze.walls.shape[1])[None, :] - x
    along, across = jnp.where(is_wide, column, row), jnp.where(is_wide, row, column)
    on_wall = is_open & (along == before) & (across >= 0) & (across < breadth)
    walls = jnp.where(on_wall, across != passage, maze.walls)

    behind = length - before - 1
    first = jnp.where(is_wide, jnp.stack([x, y, before, height]), jnp.stack([x, y, width, before]))
    second_wide = jnp.stack([x + before + 1, y, behind, height])
    second = jnp.where(is_wide, second_wide, jnp.stack([x, y + before + 1, width, behind]))
    can_split = is_open & (breadth > 1)
    adds_first, adds_second = can_split & (before > 1), can_split & (behind > 1)
    slot = jnp.arange(maze.chambers.shape[0])[:, None]
    chambers = jnp.where((slot == top) & adds_first, first, maze.chambers)
    chambers = jnp.where((slot == top + adds_first) & adds_second, second, chambers)
    return _Splitting(walls, chambers, jnp.where(is_open, top + adds_first + adds_second, 0), maze.key)


def _two_cells(is_free: Array, key: Key) -> tuple[Array, Array]:
    """Two different free cells of [N]: those of `jax.random.choice` without replacement, found without sorting."""
    scores = jnp.where(is_free, jax.random.gumbel(key, is_free.shape, jnp.float32), -jnp.inf)
    first = _argmax(scores)
    is_first = jnp.arange(scores.shape[0]) == first
    return first, _argmax(jnp.where(is_first, -jnp.inf, scores))


def _argmax(scores: Array) -> Array:
    """The first index of the largest of [N]. In bytes, where they suffice, XLA vectorises the search on CPU."""
    kind = np.uint8 if scores.shape[0] <= np.iinfo(np.uint8).max else np.int32
    last = kind(scores.shape[0] - 1)
    index = jnp.where(scores == jnp.max(scores), jnp.arange(scores.shape[0], dtype=kind), last)
    return lax.reduce(index, last, lax.min, (0,)).astype(jnp.int32)
