"""A game against a fixed player as an environment: tic-tac-toe played by hand from both seats, and made-up games in
which players move twice, or never."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.piles import make_piles

from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.boards.versus import _result, versus
from stoix_like.ops.environment_contract import check_environment
from stoix_like.types import FIRST, LAST, MID

NO_OPENING = np.zeros((1, 0), np.int32)
TIC_TAC_TOE = make_game("tic_tac_toe")


def first_legal(_params, states, _key):
    """The opponent that takes the first action it may."""
    return jnp.argmax(jax.vmap(TIC_TAC_TOE.legal_actions)(states), axis=-1)


def jitted(env):
    return env._replace(reset=jax.jit(env.reset), step=jax.jit(env.step))


def seeds_by_seat(env):
    """{seat: a key whose reset draws it}."""
    keys = jax.random.split(jax.random.key(0), 16)
    seats = jax.jit(jax.vmap(env.reset))(keys)[0].seat
    return {int(seat): key for seat, key in zip(seats, keys, strict=True)}


@pytest.fixture(scope="module")
def env():
    return jitted(versus(TIC_TAC_TOE, first_legal, NO_OPENING))


def play(env, key, actions):
    """[(step type, reward, discount, cells)] of the reset and each action, and the last state."""
    state, timestep = env.reset(key)
    shown = []
    for action in [*actions, None]:
        numbers = (int(timestep.step_type), float(timestep.reward), float(timestep.discount))
        shown.append((*numbers, state.game.cells.tolist()))
        if action is not None:
            state, timestep = env.step(state, jnp.int32(action))
    return shown, state, timestep


def board(text):
    return [{".": -1, "x": 0, "o": 1}[letter] for letter in text]


@pytest.mark.parametrize(
    ("seat", "actions", "boards", "result"),
    [
        (0, [4, 2, 6], [".........", "o...x....", "oox.x....", "oox.x.x.."], (1.0, 1.0)),  # a win as first player
        (1, [3, 4], ["x........", "xx.o.....", "xxxoo...."], (-1.0, 1.0)),  # a loss as second player
        (1, [2, 4, 6], ["x........", "xxo......", "xxoxo....", "xxoxo.o.."], (1.0, 0.0)),
        (1, [1, 4, 6, 8], ["x........", "xox......", "xoxxo....", "xoxxoxo..", "xoxxoxoxo"], (0.0, 0.5)),  # a draw
    ],
)
def test_games_by_hand(env, seat, actions, boards, result):
    shown, state, timestep = play(env, seeds_by_seat(env)[seat], actions)
    outcome, first_player = result
    kinds = [(FIRST, 0.0, 1.0), *[(MID, 0.0, 1.0)] * (len(boards) - 2), (LAST, outcome, 0.0)]
    assert shown == [(*kind, board(text)) for kind, text in zip(kinds, boards, strict=True)]
    metrics = {"win": float(outcome == 1.0), "draw": float(outcome == 0.0), "first_player": first_player}
    assert env.episode_metrics(state, timestep) == metrics


def test_what_is_shown_is_the_game_from_our_seat(env):
    for seat, key in seeds_by_seat(env).items():
        state, timestep = env.reset(key)
        planes, mask = timestep.observation
        assert planes.T.tolist() == [(state.game.cells == who).tolist() for who in (seat, 1 - seat)]
        assert mask.tolist() == (state.game.cells < 0).tolist()
    check_environment(env, carries_timestep=True)
    assert (env.task_id, env.time_limit, env.observation_adapter) == ("tic_tac_toe", 9, "lines")
    assert not env.deterministic


def test_openings_are_played_and_all_are_drawn_with_both_seats():
    openings = np.array([[0, 4], [8, 2], [3, 5]], np.int32)
    env = versus(TIC_TAC_TOE, first_legal, openings)
    state, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(1), 60))
    seen = set()
    for cells, seat in zip(state.game.cells.tolist(), state.seat.tolist(), strict=True):
        opening = [pair for pair in openings.tolist() if cells[pair[0]] == 0 and cells[pair[1]] == 1]
        taken = 9 - cells.count(-1)
        assert taken == 2 + seat  # as second player we see the opponent's third stone
        seen.add((tuple(opening[0]), seat))
    assert len(seen) == 6
    assert (timestep.step_type == FIRST).all()


def test_new_keys_replace_the_opponents_randomness_alone():
    def random_player(_params, states, key):
        masks = jax.vmap(TIC_TAC_TOE.legal_actions)(states)
        return jax.random.categorical(key, jnp.where(masks, 0.0, -jnp.inf))

    env = versus(TIC_TAC_TOE, random_player, NO_OPENING)
    state, _ = jax.jit(env.reset)(seeds_by_seat(env)[0])
    keys = jax.random.split(jax.random.key(5), 40)
    rekeyed = jax.vmap(env.rekey, in_axes=(None, 0))(state, keys)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, None)))
    after, _ = step(rekeyed, jnp.int32(4))
    assert len(np.unique(after.game.cells, axis=0)) == 8
    again, _ = step(rekeyed, jnp.int32(4))
    assert np.array_equal(after.game.cells, again.game.cells)
    assert (rekeyed.seat == state.seat).all()


def one(_params, states, _key):
    return jnp.ones(states.ply.shape, jnp.int32)


def collected(env, key, actions):
    """[(ply, sums, step type, reward)] of the reset and each action."""
    state, timestep = env.reset(key)
    shown = []
    for action in [*actions, None]:
        numbers = (int(state.game.ply), state.game.points.tolist())
        shown.append((*numbers, int(timestep.step_type), float(timestep.reward)))
        if action is not None:
            state, timestep = env.step(state, jnp.int32(action))
    return shown


def test_who_moves_twice_is_waited_for_and_may_go_on():
    env = jitted(versus(make_piles(2, [0, 1, 1, 0, 0, 1]), one, NO_OPENING))
    keys = seeds_by_seat(env)
    assert collected(env, keys[0], [2, 0, 2]) == [
        (0, [0, 0], FIRST, 0.0),
        (3, [2, 2], MID, 0.0),  # the opponent moved twice
        (4, [2, 2], MID, 0.0),  # our turn again
        (6, [4, 3], LAST, 1.0),
    ]
    assert collected(env, keys[1], [0, 0, 2]) == [
        (1, [1, 0], FIRST, 0.0),
        (2, [1, 0], MID, 0.0),
        (5, [3, 0], MID, 0.0),
        (6, [3, 2], LAST, -1.0),
    ]


def test_three_players_and_a_game_that_is_over_before_our_turn():
    env = jitted(versus(make_piles(3, [0, 1, 1], max_plies=3), one, NO_OPENING))
    keys = seeds_by_seat(env)
    assert set(keys) == {0, 1, 2}
    state, first = env.reset(keys[2])
    assert (int(first.step_type), float(first.discount)) == (FIRST, 1.0)
    assert first.observation.action_mask.all()
    assert collected(env, keys[2], [2]) == [(3, [1, 2, 0], FIRST, 0.0), (3, [1, 2, 0], LAST, -3 / 32)]
    assert collected(env, keys[0], [2])[-1] == (3, [2, 2, 0], LAST, 2 / 32)
    assert env.episode_metrics(state, first) == {"win": 0.0, "draw": 0.0, "first_player": 0.5}


def takes(number):
    """A player that always takes so many."""
    return lambda _params, states, _key: jnp.full(jax.tree.leaves(states)[0].shape[:1], number, jnp.int32)


def test_each_of_several_opponents_has_the_seat_that_comes_next_around_the_board():
    env = jitted(versus(make_piles(3, [0, 1, 2], max_plies=3), [takes(1), takes(2)], NO_OPENING))
    keys = seeds_by_seat(env)
    assert [shown[1] for shown in collected(env, keys[0], [0, 0])] == [[0, 0, 0], [0, 1, 2], [0, 1, 2]]
    assert collected(env, keys[1], [0])[0][1] == [2, 0, 0]  # before seat 1: seat 0, the second after it
    assert collected(env, keys[2], [0])[0][1] == [1, 2, 0]
    with pytest.raises(ValueError, match="has 2 other seats, got 3 opponents"):
        versus(make_piles(3, [0, 1, 2]), [one, one, one], NO_OPENING)


def test_a_place_between_is_no_draw():
    for outcome, is_draw in (([1.0, 0.0, -1.0], 0.0), ([0.0, 0.0, 0.0], 1.0)):
        found = _result(jnp.array(outcome), jnp.int32(1))
        assert (float(found["win"]), float(found["draw"])) == (0.0, is_draw)


def test_openings_of_another_form_are_refused():
    with pytest.raises(ValueError, match=r"\[M, k\]"):
        versus(TIC_TAC_TOE, first_legal, np.zeros((0, 2), np.int32))
