"""Drawings of games: a frame for each position of every game, and the mark of the last move."""

import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence

from stoix_like.config.checks.board_games import GAMES
from stoix_like.envs.boards.registry import make_game
from stoix_like.runtime.figures import boards

FIRST_MOVES = {"othello": 19}  # d3; elsewhere the first action is legal


def drawn(name, path):
    """(game, states, frames as RGB) of the position before and after the first move."""
    game = make_game(name)
    states = [game.init(), jax.jit(game.step)(game.init(), FIRST_MOVES.get(name, 0))]
    boards.save_board_gif(game, states, path)
    with Image.open(path) as image:
        return game, states, [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]


@pytest.mark.parametrize("name", GAMES)
def test_every_position_is_a_frame_and_shows_its_stones(name, tmp_path):
    game, states, (before, after) = drawn(name, tmp_path / "game.gif")
    centres, (width, height) = boards._centres(game)
    assert before.shape[1] == width
    assert before.shape[0] > height  # a line of text below
    for frame, state in ((before, states[0]), (after, states[1])):
        cells = np.asarray(game.cells(state))
        for (x, y), owner in zip(centres, cells, strict=True):
            wanted = boards._EMPTY if owner < 0 else boards._COLOURS[owner]
            pixel = frame[round(y), round(x)].astype(int)
            assert np.abs(pixel - [int(wanted[i : i + 2], 16) for i in (1, 3, 5)]).max() < 24, (name, owner)


def test_the_mark_is_on_the_new_stone_and_not_on_those_that_it_turned(tmp_path):
    game, states, (_, after) = drawn("othello", tmp_path / "game.gif")
    cells, before = (np.asarray(game.cells(state)) for state in states[::-1])
    placed, turned = np.flatnonzero((before < 0) & (cells >= 0)), np.flatnonzero((before >= 0) & (cells != before))
    assert (len(placed), len(turned)) == (1, 1)
    centres, _ = boards._centres(game)
    ring = np.arange(6, 13)  # pixels around its radius, 0.2 of a cell
    darkness = {
        kind: after[round(y), round(x) + ring].max(axis=1).min()
        for kind, (x, y) in (("placed", centres[placed[0]]), ("turned", centres[turned[0]]))
    }
    assert darkness["placed"] < 120 < darkness["turned"]
