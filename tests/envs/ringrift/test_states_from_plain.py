"""A state made from a plain position is the one that the package came to itself, and goes on like it."""

import jax
import numpy as np
import pytest
from envs.ringrift.against_plain import batched, compiled, facts_of_states, index_of
from envs.ringrift.plain import game
from envs.ringrift.plain.position import Phase
from envs.ringrift.rare_positions import random_action
from envs.ringrift.states_from_plain import from_plain

from stoix_like.envs.ringrift.state import OVER, PLACEMENT
from stoix_like.ops import trees

#: Fields that are the same in all states, and those that are of use only before the end.
ALWAYS = "rings markers collapsed places regions focus hand eliminated player phase can_skip is_swapped ending winner"
BEFORE_END = "has_acted is_recovery candidate rounds"


def assert_same(ours, made):
    """Field by field. Only the order of the turns counts in which players lost their rings."""
    is_running = ours.phase != OVER
    for name in ALWAYS.split():
        assert np.array_equal(ours._asdict()[name], made._asdict()[name]), name
    for name in BEFORE_END.split():
        assert np.array_equal(ours._asdict()[name][is_running], made._asdict()[name][is_running]), name
    is_between = (ours.phase == PLACEMENT) | ~is_running  # within a turn, a loss is noted sooner or later
    assert np.array_equal(order_of(ours.lost_at)[is_between], order_of(made.lost_at)[is_between])


def order_of(lost_at):
    """[N, P, P] who lost its rings before whom, 0 being never."""
    lost_at = np.where(lost_at == 0, np.iinfo(np.int16).max, lost_at)
    return np.sign(lost_at[:, :, None].astype(int) - lost_at[:, None])


def assert_conversion_holds(board_name, num_players, has_swap, num_games):
    found, generator = compiled(board_name, num_players, has_swap), np.random.default_rng(3)
    states = batched([found.init()] * num_games)
    positions = [game.start(board_name, num_players, has_swap) for _ in range(num_games)]
    while any(position.phase is not Phase.OVER for position in positions):
        made = batched([from_plain(found, position) for position in positions])
        assert_same(jax.tree.map(np.asarray, states), made)
        for ours, theirs in zip(facts_of_states(found, states), facts_of_states(found, made), strict=True):
            assert np.array_equal(ours["legal"], theirs["legal"])
            assert np.array_equal(ours["outcomes"], theirs["outcomes"])
        actions = np.zeros(num_games, np.int32)
        for index, position in enumerate(positions):
            if position.phase is not Phase.OVER:
                action = random_action(position, generator)
                actions[index] = index_of(found, position, action)
                positions[index] = game.play(position, action)
        is_over = np.asarray(states.phase) == OVER
        after, states = (trees.where(is_over, each, found.step(each, actions)) for each in (made, states))
        assert_same(*(jax.tree.map(np.asarray, each) for each in (states, after)))


@pytest.mark.parametrize(("board_name", "num_players"), [("hex8", 2), ("square8", 3)])
def test_a_state_from_a_plain_position_is_the_one_of_the_game(board_name, num_players):
    assert_conversion_holds(board_name, num_players, False, num_games=5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("board_name", "num_players", "has_swap"), [("square8", 2, True), ("hex8", 3, False), ("square8", 4, False)]
)
def test_states_from_plain_positions_are_those_of_the_games(board_name, num_players, has_swap):
    assert_conversion_holds(board_name, num_players, has_swap, num_games=50)
