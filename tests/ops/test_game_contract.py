"""The contract of board games: each of the project's keeps it, and each planted breach is named."""

import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.config.checks.board_games import GAMES
from stoix_like.envs.boards.registry import make_game
from stoix_like.errors import UnsupportedEnvironmentError
from stoix_like.games import ActionPlaces, Picture
from stoix_like.ops.game_contract import check_game
from stoix_like.types import Observation

GAME = make_game("connect_four")
LINES = GAME.layout.lines
PLACES = GAME.layout.places


@pytest.mark.parametrize("name", GAMES)
def test_the_games_of_the_project_keep_it(name):
    check_game(make_game(name))


def stepping_to(dtype):
    def step(state, action):
        after = GAME.step(state, action)
        return after._replace(**{after._fields[0]: after[0].astype(dtype)})

    return step


def layout(**changes):
    return {"layout": GAME.layout._replace(**changes)}


#: Of seven columns five are on cells, the sixth leads from one to another, and the last stands for itself.
ACTION_PLACES = ActionPlaces(*np.int32([[0, 0, 1, 2, 3, 4, -1], [0, 1, 0, 0, 0, 0, 0], [-1, -1, -1, -1, -1, 5, -1]]))


def placed(name, action, value):
    """The places with another entry."""
    table = getattr(ACTION_PLACES, name).copy()
    table[action] = value
    return layout(action_places=ACTION_PLACES._replace(**{name: table}))


def symmetries(**changes):
    return {"symmetries": GAME.symmetries._replace(**changes)}


def observing(planes):
    return lambda state: Observation(planes, GAME.legal_actions(state))


def drawing(markers):
    flat = jnp.zeros(42, jnp.int8)
    return lambda state: Picture(flat[:, None], markers, flat)


BREACHES = {
    "step changes the state's": {"step": stepping_to(jnp.float32)},
    "observe shows planes float32": {"observe": observing(jnp.zeros((42, 2)))},
    "observe shows planes bool": {"observe": observing(jnp.zeros((42, 1), bool))},
    "action_mask is bool \\(3,\\)": {"observe": lambda state: Observation(GAME.observe(state)[0], jnp.ones(3, bool))},
    "outcome is float32 \\(3,\\)": {"outcome": lambda state: jnp.zeros(3)},
    "is_over is int32": {"is_over": lambda state: jnp.int32(0)},
    "player is float32": {"player": lambda state: jnp.float32(0)},
    "cells is int32": {"cells": lambda state: GAME.cells(state).astype(jnp.int32)},
    "preference is float32 \\(42,\\)": {"preference": lambda state: jnp.zeros(42)},
    "max_plies is 0": {"max_plies": 0},
    "max_legal is 0": {"max_legal": 0},
    "self_play_plies is 0": {"self_play_plies": 0},
    "action_names has 1 name": layout(action_names=("1",)),
    "layout.neighbors has 41 rows": layout(neighbors=GAME.layout.neighbors[1:]),
    "layout.lines.cells has entries from 1 to 42": layout(lines=LINES._replace(cells=LINES.cells + 1)),
    "layout.lines.below has entries": layout(lines=LINES._replace(below=LINES.below - 1)),
    "layout.action_places.cells is int32 \\(6,\\)": layout(
        action_places=ACTION_PLACES._replace(cells=ACTION_PLACES.cells[1:])
    ),
    "layout.action_places.planes is float64 \\(7,\\)": layout(action_places=ACTION_PLACES._replace(planes=np.zeros(7))),
    "layout.action_places.cells has entries from -1 to 42": placed("cells", 0, 42),
    "layout.action_places.landings has entries from -2 to 5": placed("landings", 0, -2),
    "layout.action_places has two actions of one cell and plane": placed("planes", 1, 0),
    "layout.action_places has two actions of one cell and landing": layout(
        action_places=ActionPlaces(
            *np.int32([[0, 0, 1, 2, 3, 4, -1], [0, 1, 0, 0, 0, 0, 0], [5, 5, -1, -1, -1, 5, -1]])
        )
    ),
    "layout.action_places has actions without a cell that are not numbered": placed("planes", 6, 1),
    "layout.num_shared_planes is 2 of 2 planes": layout(num_shared_planes=2),
    "symmetries has 2 rows of cells and 1": symmetries(actions=GAME.symmetries.actions[:1]),
    "symmetries.cells \\(2, 42\\) is no table": symmetries(cells=GAME.symmetries.cells[::-1]),
    "symmetries.actions \\(2, 7\\) is no table": symmetries(actions=np.zeros((2, 7), np.int32)),
    "symmetries.unmapped is int64 \\(7,\\)": symmetries(unmapped=np.zeros(7, np.int64)),
    "symmetries.unmapped is bool \\(6,\\)": symmetries(unmapped=np.zeros(6, bool)),
    "layout.coordinates \\(42, 2\\) is no list of different": layout(coordinates=np.zeros((42, 2), np.int32)),
    "layout.coordinates leave the board": layout(coordinates=PLACES + 1),
    "picture.markers is int32 \\(42,\\)": {"picture": drawing(jnp.zeros(42, jnp.int32))},
    "picture.markers is int8 \\(42, 1\\)": {"picture": drawing(jnp.zeros((42, 1), jnp.int8))},
    "random_action is float32 \\(\\)": {"random_action": lambda state, number: jnp.float32(0)},
}


@pytest.mark.parametrize("said", BREACHES)
def test_a_breach_is_named(said):
    with pytest.raises(UnsupportedEnvironmentError, match=said):
        check_game(GAME._replace(**BREACHES[said]))


def test_places_of_actions_that_fit_are_no_breach():
    check_game(GAME._replace(**layout(action_places=ACTION_PLACES, num_shared_planes=1)))
