"""FrozenLake in plain Python, with the rules and the sentence of ours, as the environments of public trainers are.

Its moves never slip. Nothing here is compiled and nothing is of JAX: it is the host's side of the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stoix_like.envs.text.grids import LAKE_MOVES

Cell = tuple[int, int]  # row and column
MOVES: tuple[Cell, ...] = tuple((int(row), int(col)) for row, col in LAKE_MOVES)


@dataclass
class PythonLake:
    """A lake that is walked on."""

    size: int
    holes: frozenset[Cell]
    goal: Cell
    player: Cell
    max_actions: int
    num_actions: int = 0
    is_over: bool = False

    def step(self, action: int) -> float:
        """The reward of a move: 1 on the goal. The episode is over there, in a hole and after the last action."""
        row, col = (
            min(max(place + by, 0), self.size - 1) for place, by in zip(self.player, MOVES[action], strict=True)
        )
        self.player = (row, col)
        self.num_actions += 1
        is_solved = self.player == self.goal
        self.is_over = is_solved or self.player in self.holes or self.num_actions >= self.max_actions
        return float(is_solved)

    def sentence(self) -> str:
        """The lake in coordinates, as agents read it."""
        holes = "".join(_cell_text(hole) for hole in sorted(self.holes)) or " no cell"
        goal, player = _cell_text(self.goal), _cell_text(self.player)
        return f"Player (P) is at{player} ; holes (O) are at{holes} ; goal (G) is at{goal} .\n"


def copy_lakes(states: Any, max_actions: int) -> list[PythonLake]:
    """The lakes of states [N, ...] of our environment after its reset."""
    holes = np.asarray(states.lake.holes)  # [N, R, C]
    goals, players = (np.stack([place.row, place.col], axis=1) for place in (states.lake.goal, states.position))
    return [
        PythonLake(
            size=holes.shape[1],
            holes=frozenset(map(_cell, np.argwhere(mask))),
            goal=_cell(goal),
            player=_cell(player),
            max_actions=max_actions,
        )
        for mask, goal, player in zip(holes, goals, players, strict=True)
    ]


def _cell(place: np.ndarray) -> Cell:
    return int(place[0]), int(place[1])


def _cell_text(cell: Cell) -> str:
    return f" ({cell[0]},{cell[1]})"
