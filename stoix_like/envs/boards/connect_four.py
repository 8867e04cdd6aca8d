"""Connect four on 6 x 7 cells. Actions are the columns, from the left.

The state is one byte for each column and player, bit 0 the lowest cell. A byte has two bits more than a column has
cells, so shifts along columns and diagonals never carry a stone into another column, and adding one to the bits of a
column that are taken gives the next free one. Pairs of 32-bit words are no faster, 42 cells are slower.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards import tables
from stoix_like.games import BoardGame, BoardLayout, Lines, Symmetries
from stoix_like.types import Array, Observation

NUM_ROWS, NUM_COLUMNS, LINE_LENGTH = 6, 7, 4
LINES = tables.lines(NUM_ROWS, NUM_COLUMNS, LINE_LENGTH)  # [69, 4]
_FULL = 1 << (NUM_ROWS - 1)  # a column whose highest cell is taken is at least this
_HEIGHTS = np.arange(NUM_ROWS - 1, -1, -1, dtype=np.uint8)[
    None, :, None
]  # [1, 6, 1], the bit of each row, from the top
_BELOW = np.where(np.arange(42) < 35, np.arange(42) + NUM_COLUMNS, -1).astype(np.int32)
_LINES_OF_CELL = np.zeros((42, len(LINES)), np.float32)  # [42, 69], 1 where the line has the cell
_LINES_OF_CELL[LINES, np.arange(len(LINES))[:, None]] = 1.0
#: What a line with k stones of one player, and none of the other, is worth to that player and to the other.
_OWN_LINE = np.array([1.0, 3.0, 12.0, 100.0, 0.0], np.float32)
_BLOCKED_LINE = np.array([0.0, 2.0, 10.0, 50.0, 0.0], np.float32)
_GIVES_A_WIN = 500.0


class ConnectFourState(NamedTuple):
    """A position."""

    stones: Array  # [2, 7] uint8, cells of each column: of the player to move, of the other one


def make_connect_four() -> BoardGame:
    """Connect four, with the rules, the cells and the planes of pgx's `connect_four`."""
    columns = np.arange(NUM_COLUMNS, dtype=np.int32)
    cells = np.arange(42, dtype=np.int32).reshape(NUM_ROWS, NUM_COLUMNS)
    return BoardGame(
        name="connect_four",
        num_players=2,
        num_actions=NUM_COLUMNS,
        max_plies=42,
        init=lambda: ConnectFourState(jnp.zeros((2, NUM_COLUMNS), jnp.uint8)),
        step=_step,
        observe=_observe,
        legal_actions=_legal_actions,
        player=_player,
        outcome=_outcome,
        is_over=lambda state: _has_line(state.stones[1]) | ~jnp.any(_legal_actions(state)),
        cells=_cells,
        preference=_preference,
        layout=BoardLayout(
            (NUM_ROWS, NUM_COLUMNS),
            "square",
            tables.square_neighbors(NUM_ROWS, NUM_COLUMNS),
            tuple(str(column + 1) for column in range(NUM_COLUMNS)),
            Lines(LINES, _BELOW),
        ),
        symmetries=Symmetries(
            np.stack([cells.reshape(-1), cells[:, ::-1].reshape(-1)]), np.stack([columns, columns[::-1]])
        ),
    )


def _step(state: ConnectFourState, action: Array) -> ConnectFourState:
    is_column = jnp.arange(NUM_COLUMNS) == action  # [7]
    stone = jnp.where(is_column, state.stones[0] + state.stones[1] + jnp.uint8(1), jnp.uint8(0))
    return ConnectFourState(jnp.stack([state.stones[1], state.stones[0] | stone]))


def _has_line(stones: Array) -> Array:
    """Whether one player's `stones` [7] have four in a row. [] bool."""
    vertical = stones & (stones >> 1) & (stones >> 2) & (stones >> 3)  # [7]
    a, b, c, d = (stones[start : start + 4] for start in range(4))  # each [4]: four columns side by side
    rising = a & (b >> 1) & (c >> 2) & (d >> 3)
    falling = (a >> 3) & (b >> 2) & (c >> 1) & d
    return jnp.any(vertical != 0) | jnp.any(((a & b & c & d) | rising | falling) != 0)


def _legal_actions(state: ConnectFourState) -> Array:
    return (state.stones[0] | state.stones[1]) < _FULL


def _player(state: ConnectFourState) -> Array:
    return jnp.sum(jax.lax.population_count(state.stones).astype(jnp.int32)) % 2


def _outcome(state: ConnectFourState) -> Array:
    loser_sign = jnp.where(jnp.arange(2) == _player(state), -1.0, 1.0)  # only the player who just moved can have won
    return jnp.where(_has_line(state.stones[1]), loser_sign, 0.0).astype(jnp.float32)


def _planes(state: ConnectFourState) -> Array:
    """Which cells the player to move and the other own. [2, 42] bool."""
    bits = (state.stones[:, None, :] >> _HEIGHTS) & jnp.uint8(1)  # [2, 6, 7]
    return bits.reshape(2, 42) != 0


def _observe(state: ConnectFourState) -> Observation:
    return Observation(_planes(state).T, _legal_actions(state))


def _cells(state: ConnectFourState) -> Array:
    mine, theirs = _planes(state)  # each [42]
    player = _player(state).astype(jnp.int8)
    return jnp.where(mine, player, jnp.where(theirs, 1 - player, jnp.int8(-1)))


def _preference(state: ConnectFourState) -> Array:
    """The lines through the cell where the stone lands, more for own lines than for blocked ones and more the fuller
    they are; a stone that lets the other player win on top of it comes last. Frozen: ratings are anchored on it."""
    planes = _planes(state)
    counts = jnp.sum(planes[:, LINES], axis=-1)  # [2, 69]
    own = jnp.where(counts[1] == 0, jnp.asarray(_OWN_LINE)[counts[0]], 0.0)
    blocked = jnp.where(counts[0] == 0, jnp.asarray(_BLOCKED_LINE)[counts[1]], 0.0)
    is_threat = (counts[1] == 3) & (counts[0] == 0)
    worth = _LINES_OF_CELL @ (own + blocked)  # [42]
    wins_for_other = _LINES_OF_CELL @ is_threat.astype(jnp.float32) > 0  # [42]
    height = jax.lax.population_count(state.stones[0] | state.stones[1]).astype(jnp.int32)  # [7]
    row = NUM_ROWS - 1 - height
    landing = jnp.maximum(row, 0) * NUM_COLUMNS + jnp.arange(NUM_COLUMNS)
    gives_a_win = (row > 0) & wins_for_other[jnp.maximum(landing - NUM_COLUMNS, 0)]
    return worth[landing] - jnp.where(gives_a_win, _GIVES_A_WIN, 0.0)
