"""Self-play against games played one at a time in Python, with a scripted search: which positions become samples, when,
with which outcome."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.self_play import SETTINGS
from support.small_games import tic_tac_toe_winner

from stoix_like.algorithms.alphazero import self_play as playing
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.search.gumbel import GumbelOutput

GAME, NUM_GAMES, LENGTH = make_tic_tac_toe(), 3, SETTINGS.rollout_length


def scripted_action(slot, cells, legal):
    """The legal action of a number that differs between slots and positions."""
    number = slot * 5 + int(sum((c + 1) * (i + 1) for i, c in enumerate(cells)))
    return np.flatnonzero(legal)[number % int(legal.sum())]


def scripted_search(_key, states):
    """The same under jit. The value tells the slot, the policy is not the action's, so that fields cannot be mixed."""
    cells = jax.vmap(GAME.cells)(states).astype(jnp.int32)
    legal = jax.vmap(GAME.legal_actions)(states)
    slots = jnp.arange(NUM_GAMES)
    number = slots * 5 + jnp.sum((cells + 1) * (jnp.arange(9)[None] + 1), axis=1)
    rank = number % jnp.sum(legal, axis=1)
    action = jnp.argmax(jnp.cumsum(legal, axis=1) > rank[:, None], axis=1)
    policy = legal / jnp.sum(legal, axis=1, keepdims=True)
    zeros = jnp.zeros((NUM_GAMES, 9))
    values, network_values = (jnp.stack([value, -value], axis=-1) for value in (slots / 10.0, slots / 20.0))
    found = GumbelOutput(action, policy, values, zeros.astype(jnp.int32), zeros, zeros, network_values, slots)
    return found, jnp.bool_(True)


def played_alone(slot, plies, most_plies=9):
    """[(planes, value, outcome for the mover, ply at which the game ended)] of the finished games of one slot."""
    samples, waiting, state = [], [], GAME.init()
    for ply in range(plies):
        mover = int(GAME.player(state))
        observation = GAME.observe(state)
        waiting.append((np.asarray(observation.agent_view), mover))
        state = GAME.step(state, scripted_action(slot, GAME.cells(state).tolist(), np.asarray(observation.action_mask)))
        if GAME.is_over(state):
            outcome = np.asarray(GAME.outcome(state))
            samples += [(planes, slot / 10.0, outcome[who], outcome[1 - who], ply) for planes, who in waiting]
            waiting, state = [], GAME.init()
        elif len(waiting) == most_plies:
            waiting, state = [], GAME.init()
    return samples


@functools.cache
def played_together(num_updates, settings=SETTINGS):
    play = jax.jit(functools.partial(playing.play, playing.PlaySetup(GAME, scripted_search, settings, 1.0)))
    state, found = playing.start(GAME, settings, NUM_GAMES, jax.random.key(0)), []
    for step in range(num_updates):
        state, samples, counts, metrics = play(state, jnp.int32(step), jax.random.key(step))
        found.append(jax.device_get((samples, counts, metrics)))
    return state, found


@pytest.mark.parametrize(("most_plies", "fewest"), [(None, 60), (7, 30)])
def test_every_position_of_a_finished_game_is_a_sample_once_with_its_outcome(most_plies, fewest):
    """Those of games that are cut, which are longer than 7 plies, are none."""
    num_updates = 9
    _, found = played_together(num_updates, SETTINGS._replace(max_game_plies=most_plies))
    alone = [played_alone(slot, num_updates * LENGTH, most_plies or 9) for slot in range(NUM_GAMES)]
    assert num_updates * LENGTH * NUM_GAMES > sum(map(len, alone)) > fewest
    for step, (samples, counts, _) in enumerate(found):
        rows = [jax.tree.map(lambda x, i=i: x[i], samples) for i in np.flatnonzero(counts)]
        wanted = [row for slot in alone for row in slot if row[4] // LENGTH == step]
        assert len(rows) == len(wanted)
        for row, (planes, value, own, other, _) in zip(rows, wanted, strict=True):
            np.testing.assert_array_equal(row.observation.agent_view, planes)
            np.testing.assert_array_equal(row.root_values, np.float32([value, -value]))
            assert row.outcome.tolist() == [own, other]
            assert row.step == step


def outcome_of(slot, planes):
    """Of the mover of a position [9, 2], from which the game goes on as scripted."""
    me = mover = int(planes.sum()) % 2
    cells = np.where(planes[:, 0], me, np.where(planes[:, 1], 1 - me, -1))
    while tic_tac_toe_winner(board := "".join(".01"[c + 1] for c in cells)) is None and "." in board:
        cells[scripted_action(slot, cells.tolist(), cells < 0)] = mover
        mover = 1 - mover
    winner = tic_tac_toe_winner(board)
    return 0.0 if winner is None else 1.0 if winner == me else -1.0


def test_games_of_a_slot_that_end_in_the_same_update_keep_their_own_outcomes():
    """After random openings, so that they differ."""
    settings = SETTINGS._replace(rollout_length=20, random_plies=3)
    state = playing.start(GAME, settings, NUM_GAMES, jax.random.key(0))
    play = jax.jit(functools.partial(playing.play, playing.PlaySetup(GAME, scripted_search, settings, 1.0)))
    _, samples, counts, metrics = jax.device_get(play(state, jnp.int32(0), jax.random.key(1)))
    assert metrics["actor/episodes_count"] >= 2 * NUM_GAMES
    slots = np.rint(10 * samples.root_values[:, 0]).astype(int)
    wanted = [outcome_of(slots[row], samples.observation.agent_view[row]) for row in np.flatnonzero(counts)]
    np.testing.assert_array_equal(samples.outcome[counts, 0], wanted)
    assert len(set(wanted)) > 1


def test_unfinished_games_wait():
    state, found = played_together(9)
    total = sum(int(counts.sum()) for _, counts, _ in found)
    assert total + int(state.recorded.sum()) == NUM_GAMES * 9 * LENGTH
    np.testing.assert_array_equal(state.recorded, state.ply)  # without random plies


def test_games_that_are_cut_are_counted_and_no_draws():
    settings = SETTINGS._replace(max_game_plies=3)  # none is over by then
    state, found = played_together(6, settings)
    assert state.history.player.shape == (NUM_GAMES, 3)
    assert sum(int(counts.sum()) for _, counts, _ in found) == 0
    metrics = jax.tree.map(lambda *x: sum(x), *(metrics for *_, metrics in found))
    assert metrics["actor/truncated_sum"] == metrics["actor/episodes_count"] == 6 * LENGTH / 3 * NUM_GAMES
    assert metrics["actor/episode_length_sum"] == 6 * LENGTH * NUM_GAMES
    assert metrics["actor/draw_sum"] == 0
    assert metrics["actor/first_player_score_sum"] == metrics["actor/episodes_count"] / 2
    assert "actor/truncated_sum" not in played_together(9)[1][0][2]


def test_metrics_count_the_games_that_ended():
    _, found = played_together(9)
    alone = [played_alone(slot, 9 * LENGTH) for slot in range(NUM_GAMES)]
    ends = {(slot, row[4]) for slot, rows in enumerate(alone) for row in rows}
    firsts = [rows[0] for rows in alone]
    assert sum(float(m["actor/episodes_count"]) for *_, m in found) == len(ends)
    lengths = sum(float(m["actor/episode_length_sum"]) for *_, m in found)
    assert lengths == sum(map(len, alone))
    assert firsts[0][2] in (-1.0, 0.0, 1.0)
    scores = sum(float(m["actor/first_player_score_sum"]) for *_, m in found)
    wanted = 0.0
    for rows in alone:
        for end in {row[4] for row in rows}:
            wanted += (1.0 + next(row[2] for row in rows if row[4] == end)) / 2.0  # the first of a game is player 0's
    assert scores == pytest.approx(wanted)


def test_the_networks_values_are_compared_with_outcomes():
    _, found = played_together(9)
    alone = [(slot, row) for slot in range(NUM_GAMES) for row in played_alone(slot, 9 * LENGTH)]
    for step, (*_, metrics) in enumerate(found):
        rows = [(slot / 20.0, row[2]) for slot, row in alone if row[4] // LENGTH == step]
        if not rows:
            assert metrics["trainer/value_error"] == 0.0
            continue
        predicted, outcome = np.array(rows).T
        assert metrics["trainer/value_error"] == pytest.approx(np.mean((predicted - outcome) ** 2), rel=1e-5)
        slope = (predicted * outcome).sum() / max((predicted**2).sum(), 1e-6)
        assert metrics["trainer/value_calibration"] == pytest.approx(slope, rel=1e-5, abs=1e-5)


def test_new_games_bring_their_own_ply():
    settings = SETTINGS._replace(random_plies=3)
    play = jax.jit(functools.partial(playing.play, playing.PlaySetup(GAME, scripted_search, settings, 1.0)))
    state, restarts = playing.start(GAME, settings, NUM_GAMES, jax.random.key(0)), 0.0
    for step in range(9):
        state, _, _, metrics = play(state, jnp.int32(step), jax.random.key(step))
        np.testing.assert_array_equal(jnp.sum(jax.vmap(GAME.cells)(state.games) >= 0, axis=1), state.ply)
        restarts += float(metrics["actor/episodes_count"])
    assert restarts > 9
    assert (state.recorded < state.ply).any()  # random plies are no positions to learn from


def test_random_openings_are_drawn_uniformly_and_are_never_over():
    games, ply, _ = jax.jit(functools.partial(playing.random_openings, GAME, 8, 2000))(jax.random.key(0))
    assert not jax.vmap(GAME.is_over)(games).any()
    np.testing.assert_array_equal(jnp.sum(jax.vmap(GAME.cells)(games) >= 0, axis=1), ply)
    counts = np.bincount(ply, minlength=9)
    assert np.abs(counts[:5] - 2000 / 9).max() < 4 * (2000 / 9) ** 0.5  # up to four plies no game can end
    games, ply, _ = playing.random_openings(GAME, 0, 4, jax.random.key(0))
    assert not ply.any()


def test_moves_are_drawn_from_the_improved_policy_only_in_the_first_plies():
    weights = jnp.tile(jnp.array([0.0, 0.2, 0.8]), (4000, 1))
    found = GumbelOutput(jnp.ones(4000, jnp.int32), weights, *[jnp.zeros(4000)] * 6)
    draw = jax.jit(playing.choose_actions)
    early = np.asarray(draw(found, 1.0, jnp.ones(4000, bool), jax.random.key(0)))
    assert set(early.tolist()) == {1, 2}
    assert abs((early == 2).mean() - 0.8) < 0.03
    cool = np.asarray(draw(found, 0.5, jnp.ones(4000, bool), jax.random.key(0)))
    assert abs((cool == 2).mean() - 16 / 17) < 0.02  # 0.8^2 / (0.8^2 + 0.2^2)
    hot = np.asarray(draw(found, 1e3, jnp.ones(4000, bool), jax.random.key(0)))
    assert set(hot.tolist()) == {1, 2}  # what has no weight is never drawn
    assert (draw(found, 1.0, jnp.zeros(4000, bool), jax.random.key(0)) == 1).all()
