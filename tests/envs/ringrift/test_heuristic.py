"""The heuristic is frozen: what it prefers in a few positions, and that it looks at all that is legal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.ringrift.test_game import game_of
from envs.ringrift.test_wording import nearly_won, set_bit

from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.ringrift.actions import PLACE, make_actions
from stoix_like.envs.ringrift.state import make_rules
from stoix_like.search.mcts import random_actions

#: Cells of eighteen stacks of one ring on hex8, found by climbing: they have 260 moves, where a placement has 183.
CROWD = [2, 4, 6, 8, 11, 12, 22, 24, 26, 33, 34, 36, 39, 44, 46, 54, 55, 58]


def mid_game(game, num_games=4, num_plies=41):
    """[num_games, ...] positions of random games."""

    def ply(states, number):
        seeds = (number * num_games + jnp.arange(num_games, dtype=jnp.uint32)) * jnp.uint32(0x9E3779B9)
        return jax.vmap(game.step)(states, random_actions(game, seeds, states)), None

    first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_games, *jnp.shape(leaf))), game.init())
    return jax.jit(lambda states: jax.lax.scan(ply, states, jnp.arange(num_plies, dtype=jnp.uint32))[0])(first)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "hex8",
            [
                ("g6 to g3", -1.430717, -12.287563),
                ("g6 to d6", 1.923692, 37.243336),
                ("g3 to g5", -2.922150, -26.683510),
                ("e4 to c6", 2.429247, 6.857742),
            ],
        ),
        pytest.param(
            "square8:3",
            [
                ("b1 to d3", 0.422424, -0.549090),
                ("place 1 a3", 0.646667, 55.396698),
                ("place 3 h5", -0.815455, -101.857285),
                ("a5 to h5", 1.752424, 4.684849),
            ],
            marks=pytest.mark.full,
        ),
    ],
)
def test_what_it_prefers_stays_as_it_was_written_down(name, wanted):
    """The best action, its worth, and the worth of all legal actions together."""
    game = make_game(name)
    states = mid_game(game)
    each = [jax.tree.map(lambda leaf, row=row: leaf[row], states) for row in range(len(wanted))]
    worth = np.stack([game.preference(state) for state in each])  # one at a time, as all tests here: it compiles once
    legal = np.asarray(jax.vmap(game.legal_actions)(states))
    for row, mask, (action, best, total) in zip(worth, legal, wanted, strict=True):
        assert game.layout.action_names[int(row.argmax())] == action
        assert row.max() == pytest.approx(best, abs=1e-5)
        assert row[mask].sum(dtype=np.float64) == pytest.approx(total, abs=1e-3)


def test_the_heuristic_takes_what_wins_and_weighs_only_legal_actions():
    game = game_of("hex8")
    actions = make_actions(make_rules("hex8", 2))
    first = np.asarray(game.preference(game.init()))
    placements = actions.kind == PLACE
    assert np.isfinite(first).all()
    assert (first[placements] > -100).all()
    assert (first[~placements] == -1000).all()
    state = nearly_won(game)
    values = np.where(np.asarray(game.legal_actions(state)), np.asarray(game.preference(state)), -np.inf)
    best = int(values.argmax())
    assert game.layout.action_names[best] == "e5 to g5"
    assert float(game.outcome(game.step(state, best))[0]) == 1.0


def test_it_looks_at_every_legal_action_however_many_there_are():
    game, board = make_game("hex8"), make_rules("hex8", 2).board
    state = jax.tree.map(np.array, game.init())
    for bit in board.bits[CROWD]:
        set_bit(state.rings[0, 0], bit)
    state = state._replace(places=state.places * 0, hand=np.array([0, 18], np.int8), phase=np.int8(1))
    legal = np.asarray(game.legal_actions(state))
    assert legal.sum() == 260
    worth = np.asarray(game.preference(jax.tree.map(jnp.asarray, state)))
    np.testing.assert_array_equal(worth > -1000, legal)
