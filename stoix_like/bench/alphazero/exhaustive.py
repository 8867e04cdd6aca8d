"""Tic-tac-toe played out in full: a player without randomness against every choice of one who makes no mistake.

Plain NumPy, apart from the game's module in `envs` and from any search: values are those of minimax over all boards.
Positions are taken ply by ply, those that several games share once, so that a ply is one call of the player; each keeps
the number of games that led to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards.tic_tac_toe import LINES, TicTacToeState
from stoix_like.games import Player
from stoix_like.types import Params

NUM_CELLS = 9
_POWERS = 3 ** np.arange(NUM_CELLS)
_EMPTY = np.full(NUM_CELLS, -1, np.int8)

#: (boards [N, 9], who is to move) -> free cells [N].
Choose = Callable[[np.ndarray, int], np.ndarray]


class Table(NamedTuple):
    """What minimax says of every board, by its code. Boards that no game reaches mean nothing."""

    value: np.ndarray  # [19683] int8, for the mover: 1 wins, 0 draws, -1 loses
    optimal: np.ndarray  # [19683, 9] bool, the cells that keep the value; none where the game is over


class Outcomes(NamedTuple):
    """How many games the player won, drew and lost."""

    wins: int
    draws: int
    losses: int

    @property
    def num_games(self) -> int:
        return self.wins + self.draws + self.losses


def codes(boards: np.ndarray) -> np.ndarray:
    """The numbers [N] of boards [N, 9], whose cells are -1 (empty), 0 or 1: the owners in base 3."""
    numbers: np.ndarray = (boards.astype(np.int64) + 1) @ _POWERS
    return numbers


def has_line(boards: np.ndarray, player: int) -> np.ndarray:
    """[N] bool: whether the player has three in a row on boards [N, 9]."""
    found: np.ndarray = (boards[:, LINES] == player).all(axis=2).any(axis=1)
    return found


def make_table() -> Table:
    """Minimax over all boards, from full ones back to the empty one."""
    boards = (np.arange(3**NUM_CELLS)[:, None] // _POWERS % 3 - 1).astype(np.int8)  # [19683, 9]
    stones = (boards >= 0).sum(axis=1)
    value = np.zeros(len(boards), np.int8)
    optimal = np.zeros(boards.shape, bool)
    for number in range(NUM_CELLS, -1, -1):
        rows = np.flatnonzero((stones == number) & ((boards == 1).sum(axis=1) == number // 2))
        mover, now = number % 2, boards[rows]
        lost = has_line(now, 1 - mover)
        after = rows[:, None] + (mover + 1) * _POWERS[None]  # [rows, 9], code of the board after a stone in each cell
        legal = (now < 0) & ~lost[:, None]
        children = np.where(legal, -value[np.where(legal, after, 0)], -2)  # [rows, 9]
        goes_on = legal.any(axis=1)
        value[rows] = np.where(lost, -1, np.where(goes_on, children.max(axis=1), 0))
        optimal[rows] = legal & (children == value[rows][:, None])
    return Table(value, optimal)


def play_exhaustively(table: Table, choose: Choose, seat: int, start: np.ndarray = _EMPTY) -> Outcomes:
    """All games of a player against an opponent who may make any move that keeps the value of the position.

    Args:
        table: of the opponent.
        choose: the player; the same in the same position.
        seat: of the player, 0 moves first.
        start: cells [9] of the position to begin from, not over.

    Raises:
        ValueError: the player chose a cell that is taken.
    """
    boards, counts = start[None].astype(np.int8), np.ones(1, np.int64)
    totals = {0: 0, 1: 0, -1: 0}  # by the winner; -1 nobody
    for ply in range(int((start >= 0).sum()), NUM_CELLS):
        mover = ply % 2
        rows, cells = _moves(table, choose, seat, boards, mover)
        boards, counts = boards[rows].copy(), counts[rows]
        if (boards[np.arange(len(rows)), cells] >= 0).any():
            raise ValueError(f"ply {ply + 1}: the player chose a cell that is taken")
        boards[np.arange(len(rows)), cells] = mover
        boards, counts = _merged(boards, counts)
        won = has_line(boards, mover)
        totals[mover] += int(counts[won].sum())
        boards, counts = boards[~won], counts[~won]
    return Outcomes(totals[seat], int(counts.sum()), totals[1 - seat])


def _moves(table: Table, choose: Choose, seat: int, boards: np.ndarray, mover: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows of the boards that are moved on, the cells): one move of the player, or all good ones of the opponent."""
    if mover == seat:
        return np.arange(len(boards)), np.asarray(choose(boards, mover)) if len(boards) else np.zeros(0, int)
    rows, cells = np.nonzero(table.optimal[codes(boards)])
    return rows, cells


def _merged(boards: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct boards, and how many games led to each."""
    _, first, inverse = np.unique(codes(boards), return_index=True, return_inverse=True)
    summed = np.zeros(len(first), np.int64)
    np.add.at(summed, inverse, counts)
    return boards[first], summed


def chooser(player: Player, batch: int = 128) -> Callable[[Params], Choose]:
    """A function of the parameters that makes a `Choose` of a player. It compiles once, for so many positions."""
    act = jax.jit(lambda params, states: player(params, states, jax.random.key(0)))

    def with_params(params: Params) -> Choose:
        def choose(boards: np.ndarray, mover: int) -> np.ndarray:
            padded = np.concatenate([boards, np.tile(_EMPTY, (-len(boards) % batch, 1))])
            chosen = []
            for part in padded.reshape(-1, batch, NUM_CELLS):
                nobody = jnp.full((batch,), -1, jnp.int8)
                states = TicTacToeState(jnp.asarray(part), jnp.full((batch,), mover, jnp.int8), nobody)
                chosen.append(np.asarray(act(params, states)))
            return np.concatenate(chosen)[: len(boards)]

        return choose

    return with_params
