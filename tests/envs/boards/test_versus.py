"""A game against a fixed player as an environment: tic-tac-toe played by hand from both seats, and made-up games in
which players move twice, or never."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.boards.versus import versus
from stoix_like.evaluation import episodes
from stoix_like.games import BoardGame, BoardLayout, Symmetries
from stoix_like.ops.environment_contract import check_environment
from stoix_like.types import FIRST, LAST, MID, Array, Observation

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


def test_a_win_as_first_player(env):
    shown, state, timestep = play(env, seeds_by_seat(env)[0], [4, 2, 6])
    assert shown == [
        (FIRST, 0.0, 1.0, board(".........")),
        (MID, 0.0, 1.0, board("o...x....")),
        (MID, 0.0, 1.0, board("oox.x....")),
        (LAST, 1.0, 0.0, board("oox.x.x..")),
    ]
    assert env.episode_metrics(state, timestep) == {"win": 1.0, "draw": 0.0, "first_player": 1.0}


def test_a_loss_as_second_player(env):
    shown, state, timestep = play(env, seeds_by_seat(env)[1], [3, 4])
    assert shown == [
        (FIRST, 0.0, 1.0, board("x........")),
        (MID, 0.0, 1.0, board("xx.o.....")),
        (LAST, -1.0, 0.0, board("xxxoo....")),
    ]
    assert env.episode_metrics(state, timestep) == {"win": 0.0, "draw": 0.0, "first_player": 1.0}


def test_a_draw_and_a_win_as_second_player(env):
    shown, state, timestep = play(env, seeds_by_seat(env)[1], [1, 4, 6, 8])
    assert shown[-1] == (LAST, 0.0, 0.0, board("xoxxoxoxo"))
    assert env.episode_metrics(state, timestep) == {"win": 0.0, "draw": 1.0, "first_player": 0.5}
    shown, state, timestep = play(env, seeds_by_seat(env)[1], [2, 4, 6])
    assert shown[-1] == (LAST, 1.0, 0.0, board("xxoxo.o.."))
    assert env.episode_metrics(state, timestep) == {"win": 1.0, "draw": 0.0, "first_player": 0.0}


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


class TurnsState(NamedTuple):
    """A made-up game: players take turns by a list and collect their actions; who collects most wins."""

    ply: Array
    sums: Array


def turns_game(turns, num_players=2):
    def outcome(state):
        best = jnp.argmax(state.sums)
        loss = -1.0 / (num_players - 1)
        return jnp.where(state.ply < len(turns), 0.0, jnp.where(jnp.arange(num_players) == best, 1.0, loss))

    def step(state, action):
        mover = jnp.asarray(turns)[state.ply]
        return TurnsState(state.ply + 1, state.sums.at[mover].add(action))

    return BoardGame(
        name="turns",
        num_players=num_players,
        num_actions=3,
        max_plies=len(turns),
        init=lambda: TurnsState(jnp.int32(0), jnp.zeros((num_players,), jnp.int32)),
        step=step,
        observe=lambda state: Observation(jnp.zeros((1, 2), bool), state.ply * jnp.ones((3,), jnp.int32) < len(turns)),
        legal_actions=lambda state: jnp.broadcast_to(state.ply < len(turns), (3,)),
        player=lambda state: jnp.asarray(turns, jnp.int32)[jnp.minimum(state.ply, len(turns) - 1)],
        outcome=outcome,
        is_over=lambda state: state.ply >= len(turns),
        cells=lambda state: jnp.full((1,), -1, jnp.int8),
        preference=lambda state: jnp.zeros((3,)),
        layout=BoardLayout((1, 1), "square", np.full((1, 8), -1, np.int32), ("a", "b", "c")),
        symmetries=Symmetries(np.zeros((1, 1), np.int32), np.arange(3, dtype=np.int32)[None]),
    )


def one(_params, states, _key):
    return jnp.ones(states.ply.shape, jnp.int32)


def collected(env, key, actions):
    """[(ply, sums, step type, reward)] of the reset and each action."""
    state, timestep = env.reset(key)
    shown = []
    for action in [*actions, None]:
        numbers = (int(state.game.ply), state.game.sums.tolist())
        shown.append((*numbers, int(timestep.step_type), float(timestep.reward)))
        if action is not None:
            state, timestep = env.step(state, jnp.int32(action))
    return shown


def test_who_moves_twice_is_waited_for_and_may_go_on():
    env = jitted(versus(turns_game([0, 1, 1, 0, 0, 1]), one, NO_OPENING))
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
    env = jitted(versus(turns_game([0, 1, 1], num_players=3), one, NO_OPENING))
    keys = seeds_by_seat(env)
    assert set(keys) == {0, 1, 2}
    state, first = env.reset(keys[2])
    assert (int(first.step_type), float(first.discount)) == (FIRST, 1.0)
    assert first.observation.action_mask.all()
    assert collected(env, keys[2], [2]) == [(3, [1, 2, 0], FIRST, 0.0), (3, [1, 2, 0], LAST, -0.5)]
    assert collected(env, keys[0], [2])[-1] == (3, [2, 2, 0], LAST, 1.0)
    assert env.episode_metrics(state, first) == {"win": 0.0, "draw": 0.0, "first_player": 0.25}


def test_evaluation_plays_it_as_any_environment(env, key):
    """We take the last free cell and the opponent the first, so who begins has three in a row first."""

    def policy(_params, states, observation, _key, _deterministic):
        assert states.game.cells.ndim == 2
        return 8 - jnp.argmax(observation.action_mask[:, ::-1], axis=-1)

    results = episodes.evaluate(env, policy, None, key, num_episodes=16, deterministic=True)
    assert set(np.asarray(results.episode_return).tolist()) == {1.0, -1.0}
    assert np.array_equal(results.env_metrics["win"], results.episode_return == 1.0)
    assert (results.env_metrics["first_player"] == 1.0).all()


def test_openings_of_another_form_are_refused():
    with pytest.raises(ValueError, match=r"\[M, k\]"):
        versus(TIC_TAC_TOE, first_legal, np.zeros((0, 2), np.int32))
