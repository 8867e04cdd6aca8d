"""Sudoku against plain rules, and its puzzles."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like.envs.text import oracles, sudoku
from stoix_like.envs.text.sudoku import SudokuState, make_sudoku, solutions
from stoix_like.errors import ConfigError
from stoix_like.types import LAST


def breaks(cells, row, column, number):
    box = cells[row // 2 * 2 :, column // 2 * 2 :][:2, :2].copy()
    line, pillar = cells[row].copy(), cells[:, column].copy()
    line[column] = pillar[row] = box[row % 2, column % 2] = 0
    return number in line or number in pillar or number in box


def test_there_are_288_filled_grids_and_the_first_is_known():
    assert solutions().shape == (sudoku.NUM_GRIDS, 4, 4)
    np.testing.assert_array_equal(solutions()[0], [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]])


@pytest.mark.parametrize("num_envs", [256, full(7_000)])
def test_random_play_equals_plain_rules(num_envs, key):
    env = make_sudoku(max_actions=15)

    def step(state, key):
        action = jax.random.randint(key, (num_envs,), 0, 64)
        after, timestep = jax.vmap(env.step)(state, action)
        return after, (state, action, after, timestep)

    start, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(key, num_envs))
    played = jax.jit(lambda: jax.lax.scan(step, start, jax.random.split(key, 15)))()[1]
    before, action, after, timestep = jax.device_get(played)
    taken = 0
    for t, n in itertools.product(range(15), range(num_envs)):
        (row, column), number = divmod(action[t, n] // 4, 4), action[t, n] % 4 + 1
        cells, given = before.cells[t, n].copy(), before.given[t, n]
        if not given[row, column] and not breaks(cells, row, column, number):
            cells[row, column] = number
            taken += 1
        np.testing.assert_array_equal(after.cells[t, n], cells)
        solved = bool((cells > 0).all())
        assert timestep.reward[t, n] == solved
        assert (timestep.step_type[t, n] == LAST) == (solved or t == 14)
        np.testing.assert_array_equal(timestep.observation.action_mask[t, n].reshape(4, 4, 4).all(axis=2), ~given)
    assert taken > 100


def test_an_observation_shows_numbers_given_cells_and_what_is_left():
    cells = np.array([[0, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 0]], np.int8)
    state = jax.tree.map(jnp.asarray, SudokuState(cells > 0, cells, np.int32(4)))
    _, timestep = jax.jit(make_sudoku(num_empty=2, max_actions=20).step)(state, 0)
    view = timestep.observation.agent_view
    np.testing.assert_array_equal(view["cells"].argmax(axis=-1), [[1, 2, 3, 4], *cells[1:].tolist()])
    np.testing.assert_array_equal(view["cells"].sum(axis=-1), 1.0)
    np.testing.assert_array_equal(view["given"], cells > 0)
    assert float(view["actions_left"]) == pytest.approx(15 / 20)


def test_puzzles_have_one_solution_which_is_found_and_halves_are_apart(key):
    env, sets = make_sudoku(num_empty=6), []
    for reset in (env.reset, env.evaluation_reset):
        puzzles = np.asarray(jax.jit(jax.vmap(reset))(jax.random.split(key, 2048))[0].cells)
        assert ((puzzles == 0).sum(axis=(1, 2)) == 6).all()
        for cells in puzzles[:100]:
            agrees = [grid for grid in solutions() if ((cells == 0) | (grid == cells)).all()]
            assert len(agrees) == 1
        sets.append({puzzle.tobytes() for puzzle in puzzles})
    assert not sets[0] & sets[1]
    state, timestep = jax.jit(env.reset)(key)
    (solution,) = [grid for grid in solutions() if ((state.cells == 0) | (grid == np.asarray(state.cells))).all()]
    step = jax.jit(env.step)
    for row, column in np.argwhere(np.asarray(state.cells) == 0):
        state, timestep = step(state, np.int32(16 * row + 4 * column + solution[row, column] - 1))
    assert (float(timestep.reward), int(timestep.step_type), float(timestep.discount)) == (1.0, LAST, 0.0)
    assert oracles.sudoku_ceiling(6, oracles.Turns(5, 5, 50)) == 1.0
    assert oracles.sudoku_ceiling(6, oracles.Turns(1, 5, 50)) == 0.0


def test_text_and_refusals():
    cells = np.array([[0, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 0]], np.int8)
    assert make_sudoku().render(SudokuState(cells > 0, cells, np.int32(0))) == (
        "| . 2 | 3 4 |\n| 3 4 | 1 2 |\n| 2 1 | 4 3 |\n| 4 3 | 2 . |\nEmpty cells: (1,1), (4,4)."
    )
    with pytest.raises(ConfigError, match="num_empty: must be from 1 to 10"):
        make_sudoku(num_empty=11)
    with pytest.raises(ConfigError, match="5 are too few for 6"):
        make_sudoku(max_actions=5)
