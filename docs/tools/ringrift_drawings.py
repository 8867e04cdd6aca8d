"""Draws the positions of docs/ringrift.md: both boards with the names of their cells, and small positions of each rule.

`python docs/tools/ringrift_drawings.py` writes docs/images/ringrift; a test fails if a drawing is out of date. A small
position is put together by hand, and what comes after it is played by the game itself: an action that is not legal is
an error here, so no drawing shows what the rules do not allow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.ringrift import state as phases
from stoix_like.envs.ringrift.boards import Board, make_board
from stoix_like.envs.ringrift.sets import board_words
from stoix_like.envs.ringrift.state import RingRiftState, make_rules, position_of
from stoix_like.envs.ringrift.turn import next_decision
from stoix_like.envs.ringrift.wording import cell_name
from stoix_like.games import BoardGame
from stoix_like.runtime.figures.boards import board_svg

FOLDER = Path(__file__).parents[1] / "images" / "ringrift"
BOARDS = ("square8", "hex8")
SMALL = "square8"  # the board of the small positions, whose upper left corner they show
_IN_HAND = 5  # rings of each player, so that nobody has lost the last one


class Figure(NamedTuple):
    """A position and what may come of it, `NAME_0.svg`, `NAME_1.svg` and so on.

    `cells` are rows of words from a1 on: `.` an empty cell, `m1` a marker of player 1, `c1` a cell of its territory,
    `12` a stack with player 2 on top. Player 1 decides. Each of the other drawings shows the position after `actions`.
    """

    name: str
    phase: int
    cells: str
    actions: tuple[tuple[str, ...], ...]


FIGURES = (
    Figure(
        "placement",
        phases.PLACEMENT,
        """ .  2 m2  .
            . 22  .  . """,
        (("place 3 a1",), ("place 1 b1",)),
    ),
    Figure("move", phases.MOVEMENT, "11 m2 m1 . m2", (("a1 to d1",), ("a1 to e1",))),
    Figure("capture", phases.MOVEMENT, "11 22 . .", (("a1 to c1",),)),
    Figure(
        "chain",
        phases.MOVEMENT,
        """ 1  2  .  .  .
            .  .  .  2  .
            .  .  .  .  . """,
        (("a1 to c1",), ("a1 to c1", "c1 to e3")),
    ),
    Figure(
        "line",
        phases.LINE,
        """ m1 m1 m1 m1 m1
             . 11  .  .  . """,
        (("line a1 right", "pay b2"), ("part b1 right",)),
    ),
    Figure(
        "region",
        phases.TERRITORY,
        """  2 m2 m1   .
             . m1 m1   .
            m1 m2  .   .
             .  .  . 211 """,
        (("region a1 of 1",), ("region a1 of 1", "pay d4")),
    ),
    Figure(
        "recovery",
        phases.MOVEMENT,
        """ m1 m1 m1  .
             .  .  . m1
             . 12  .  . """,
        (("d2 to d1",), ("d2 to d1", "line a1 right", "pay b3")),
    ),
)


class Playing(NamedTuple):
    """The game of the small positions, compiled once."""

    game: BoardGame
    settle: Callable[[RingRiftState, int], RingRiftState]  # at the first decision from a phase on
    step: Callable[[RingRiftState, int], RingRiftState]
    legal: Callable[[RingRiftState], Any]


@functools.cache
def playing() -> Playing:
    """The functions of the game on `SMALL`."""
    game, rules = make_game(SMALL), make_rules(SMALL, 2)

    def settle(state: RingRiftState, phase: int) -> RingRiftState:
        return next_decision(rules, state, position_of(state), jnp.asarray(phase))

    return Playing(game, jax.jit(settle), jax.jit(game.step), jax.jit(game.legal_actions))


def drawings() -> Iterator[tuple[Path, str]]:
    """(path, text) of every drawing."""
    for name in BOARDS:
        game = make_game(name)
        yield FOLDER / f"{name}.svg", board_svg(game, game.init(), cell_names(make_board(name)))
    board = make_board(SMALL)
    for figure in FIGURES:
        words = words_of(board, figure)
        states = [start_of(board, figure, words), *(played(start_of(board, figure, words), a) for a in figure.actions)]
        for number, state in enumerate(states):
            svg = board_svg(playing().game, state, cell_names(board), list(words))
            yield FOLDER / f"{figure.name}_{number}.svg", svg


def cell_names(board: Board) -> list[str]:
    """The names of all cells, in their order."""
    return [cell_name(board, cell) for cell in range(board.num_cells)]


def words_of(board: Board, figure: Figure) -> dict[int, str]:
    """What lies on each cell that is shown."""
    rows = [line.split() for line in figure.cells.splitlines()]
    return {board.cell_at(column, row): word for row, words in enumerate(rows) for column, word in enumerate(words)}


def start_of(board: Board, figure: Figure, words: dict[int, str]) -> RingRiftState:
    """The position of a figure at its first decision."""
    start = playing().game.init()
    rings, markers, collapsed = (
        np.zeros((*leaf.shape[:-1], board.num_cells), bool) for leaf in (start.rings, start.markers, start.collapsed)
    )
    for cell, word in words.items():
        if word.isdigit():
            for level, owner in enumerate(reversed(word)):
                rings[level, int(owner) - 1, cell] = True
        elif word != ".":
            {"m": markers, "c": collapsed}[word[0]][int(word[1]) - 1, cell] = True
    state = start._replace(
        rings=board_words(board, rings),
        markers=board_words(board, markers),
        collapsed=board_words(board, collapsed),
        hand=np.full_like(start.hand, _IN_HAND),
        turn=np.int16(9),
        has_acted=np.bool_(figure.phase > phases.MOVEMENT),
    )
    return playing().settle(state, figure.phase)


def played(state: RingRiftState, actions: Sequence[str]) -> RingRiftState:
    """The state after legal actions by name."""
    names = playing().game.layout.action_names
    for name in actions:
        action = names.index(name)
        assert playing().legal(state)[action], f"{name} is not legal"
        state = playing().step(state, action)
    return state


def outdated() -> dict[Path, str]:
    """Those that are not there, or show something else."""
    return {path: svg for path, svg in drawings() if not path.exists() or path.read_text(encoding="utf-8") != svg}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, svg in outdated().items():
        path.write_text(svg, encoding="utf-8")
