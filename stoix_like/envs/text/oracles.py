"""How often the best player succeeds within the actions it has: the exact ceiling of a level.

By dynamic programming over cells and actions left, in NumPy. An agent that writes several actions at once commits to
them before it has seen what the first one did. `Turns` says how many it may write, and how often; with one action a
turn it sees everything, which is an upper bound of every other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from stoix_like.envs.text.grids import LAKE_MOVES, ROOM_MOVES, Lake, Room
from stoix_like.errors import ConfigError


class Turns(NamedTuple):
    """What an agent may do in an episode: at most so many turns, actions a turn, and actions in all."""

    num_turns: int = 5
    actions_per_turn: int = 5
    max_actions: int = 10

    @classmethod
    def one_by_one(cls, max_actions: int) -> Turns:
        """Every action is chosen after the one before was seen."""
        return cls(max_actions, 1, max_actions)

    @classmethod
    def of_budget(cls, budget: tuple[int, int] | None, max_actions: int) -> Turns:
        """A budget of (turns, actions a turn); without one, every action is a turn."""
        return cls.one_by_one(max_actions) if budget is None else cls(*budget, max_actions)


def frozen_lake_ceiling(lake: Lake, intended_p: float, turns: Turns) -> float:
    """The probability that the best player of a lake, with arrays of NumPy, reaches its goal.

    Raises ConfigError for more than 8 actions a turn: all their sequences are tried.
    """
    if turns.actions_per_turn > 8:
        raise ConfigError(
            f"at most 8 actions a turn can be tried in all orders, got {turns.actions_per_turn}", "ask for fewer"
        )
    holes = np.asarray(lake.holes)
    size, goal = holes.shape[0], int(lake.goal.row) * holes.shape[0] + int(lake.goal.col)
    matrices = _transitions(holes, goal, intended_p)
    reached = {0: np.eye(size**2)[None]}  # {actions written: [sequences, from, to]}
    for written in range(1, min(turns.actions_per_turn, turns.max_actions) + 1):
        reached[written] = np.einsum("sij,ajk->saik", reached[written - 1], matrices).reshape(-1, *matrices.shape[1:])
    success = np.zeros(size**2)
    success[goal] = 1.0
    value = dict.fromkeys(range(turns.max_actions + 1), success)  # {actions left: [S] success from each cell}
    for turn in reversed(range(min(turns.num_turns, turns.max_actions))):
        left = range(max(0, turns.max_actions - turn * turns.actions_per_turn), turns.max_actions - turn + 1)
        value = {actions: _best(reached, value, success, actions) for actions in left}
    start = int(lake.start.row) * size + int(lake.start.col)
    return float(value[turns.max_actions][start])


def _best(
    reached: dict[int, np.ndarray], after: dict[int, np.ndarray], success: np.ndarray, actions_left: int
) -> np.ndarray:
    """[S] the best success from each cell with a turn to write; `after` is that of later turns by actions left."""
    value = success
    for written in range(1, min(len(reached) - 1, actions_left) + 1):
        value = np.maximum(value, (reached[written] @ after[actions_left - written]).max(axis=0))
    return value


def _transitions(holes: np.ndarray, goal: int, intended_p: float) -> np.ndarray:
    """[A, S, S] probabilities of the next cell; holes and the goal keep the player."""
    size = holes.shape[0]
    matrices = np.zeros((4, size**2, size**2))
    for cell in range(size**2):
        row, column = divmod(cell, size)
        for action in range(4):
            if holes[row, column] or cell == goal:
                matrices[action, cell, cell] = 1.0
                continue
            for turn, share in ((-1, (1 - intended_p) / 2), (0, intended_p), (1, (1 - intended_p) / 2)):
                down, right = LAKE_MOVES[(action + turn) % 4]
                there = min(max(row + down, 0), size - 1) * size + min(max(column + right, 0), size - 1)
                matrices[action, cell, there] += share
    return matrices


_Cell = tuple[int, int]


def sokoban_distance(room: Room, max_actions: int) -> int | None:
    """The fewest moves that solve a room, with arrays of NumPy; None if more than `max_actions` are needed."""
    walls, targets = np.asarray(room.walls), _cells(room.targets)
    frontier = [((int(room.player.row), int(room.player.col)), _cells(room.boxes))]
    seen = set(frontier)
    for distance in range(max_actions + 1):
        if any(boxes == targets for _, boxes in frontier):
            return distance
        reached = {after for now in frontier for after in _moves(walls, *now)} - seen
        seen |= reached
        frontier = list(reached)
    return None


def _cells(marks: Any) -> frozenset[_Cell]:
    return frozenset((int(row), int(column)) for row, column in np.argwhere(np.asarray(marks)))


def _moves(walls: np.ndarray, player: _Cell, boxes: frozenset[_Cell]) -> Iterator[tuple[_Cell, frozenset[_Cell]]]:
    row, column = player
    for down, right in ROOM_MOVES.tolist():
        ahead, behind = (row + down, column + right), (row + 2 * down, column + 2 * right)
        if walls[ahead]:
            continue
        if ahead not in boxes:
            yield ahead, boxes
        elif not walls[behind] and behind not in boxes:
            yield ahead, boxes - {ahead} | {behind}


def sokoban_ceiling(room: Room, turns: Turns) -> float:
    """1.0 if the actions of all turns solve a room, else 0.0. Nothing is random, so seeing adds nothing."""
    most = min(turns.max_actions, turns.num_turns * turns.actions_per_turn)
    return float(sokoban_distance(room, most) is not None)


def sudoku_ceiling(num_empty: int, turns: Turns) -> float:
    """1.0 if there are as many actions as empty cells: every puzzle has one solution."""
    return float(min(turns.max_actions, turns.num_turns * turns.actions_per_turn) >= num_empty)
