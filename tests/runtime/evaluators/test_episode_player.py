"""Episodes played in pieces equal episodes played at once; progress is reported between the pieces."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stoix_like as sl
from stoix_like.evaluation import episodes
from stoix_like.runtime.console import messages
from stoix_like.runtime.evaluators.episode_player import EpisodePlayer, fresh_levels, frozen_levels, report_progress
from stoix_like.runtime.evaluators.timing import ChunkSizer
from stoix_like.types import MemoryPolicy

KEYS = jax.random.split(jax.random.key(3), 3)  # of three seeds


def _uniform(params, env_state, observation, key, deterministic):
    """Prefers the action `params`, so that seeds with different ones differ."""
    logits = jnp.where(observation.action_mask, jnp.eye(4)[params][None], -1e9)
    return jnp.argmax(logits, -1) if deterministic else jax.random.categorical(key, logits)


def _remembered():
    def act(params, memory, env_state, observation, key, deterministic):
        return _uniform(params, env_state, observation, key, deterministic), memory + 1

    return MemoryPolicy(lambda n: jnp.zeros((n,), jnp.int32), act)


@functools.cache
def _maze():
    return sl.make_env("Maze-v0", kwargs={"num_rows": 4, "num_cols": 4})


@pytest.fixture(params=[1, 3, 1000])
def steps_per_piece(request, monkeypatch):
    monkeypatch.setattr(ChunkSizer, "next_length", lambda self, most: min(request.param, most))


def _player(schedule, num_episodes, **options):
    return EpisodePlayer(
        _maze(), _remembered(), schedule, num_episodes=num_episodes, num_envs=8, memory_hint="", **options
    )


@pytest.mark.usefixtures("steps_per_piece")
@pytest.mark.parametrize("deterministic", [False, True])
def test_fresh_levels_in_pieces(deterministic):
    play = functools.partial(episodes.evaluate, _maze(), _uniform, num_episodes=16, num_envs=8)
    expected = jax.jit(functools.partial(play, deterministic=deterministic))(jnp.int32(1), KEYS[0])
    player = _player(fresh_levels(16, 8), 16, deterministic=deterministic)
    results, decisions = player(jnp.int32(1), KEYS[0])
    jax.tree.map(np.testing.assert_array_equal, results, expected)
    np.testing.assert_array_equal(decisions, results.episode_length)
    assert len(set(results.episode_length.tolist())) > 2


@pytest.mark.usefixtures("steps_per_piece")
def test_frozen_levels_of_several_seeds():
    """20 levels in rounds of 8: the last is filled up with the first four."""
    levels = jax.random.split(jax.random.key(5), 20)
    preferred = jnp.arange(3)
    player = _player(frozen_levels(levels, 8), 20, num_seeds=3, deterministic=False)
    reports = []
    results, decisions = player(preferred, KEYS, on_progress=lambda *seen: reports.append(seen))
    assert results.episode_return.shape == decisions.shape == (3, 20)
    assert {total for _, total, _ in reports} == {60}
    assert max(finished for finished, *_ in reports) == reports[-1][0] == 60
    play = functools.partial(episodes.evaluate_levels, _maze(), _uniform, num_envs=8, deterministic=False)
    for seed in range(3):
        expected = jax.jit(play)(preferred[seed], jnp.concatenate([levels, levels[:4]]), KEYS[seed])
        jax.tree.map(lambda x, y, seed=seed: np.testing.assert_array_equal(x[seed], y[:20]), results, expected)
    assert (results.episode_length[0] != results.episode_length[1]).any()


def test_fresh_levels_are_padded_to_whole_rounds():
    """12 episodes in rounds of 8 are those of one round of 12: without sampling, a level alone decides its episode."""
    play = functools.partial(episodes.evaluate, _maze(), _uniform, num_episodes=12)
    expected = jax.jit(play)(jnp.int32(1), KEYS[0])
    results, _ = _player(fresh_levels(12, 8), 12)(jnp.int32(1), KEYS[0])
    jax.tree.map(np.testing.assert_array_equal, results, expected)


def test_progress_is_reported_after_every_piece_and_the_callback_may_raise(monkeypatch):
    monkeypatch.setattr(ChunkSizer, "next_length", lambda self, most: 1)
    reports = []
    player = _player(fresh_levels(16, 8), 16)
    results, _ = player(jnp.int32(0), KEYS[0], on_progress=lambda *seen: reports.append(seen))
    rounds = results.episode_length.reshape(2, 8)
    assert len(reports) == rounds.max(axis=1).sum()
    by_hand = []
    for r, lengths in enumerate(rounds):
        by_hand += [(8 * r + (lengths <= step).sum(), 16, step) for step in range(1, lengths.max() + 1)]
    assert reports == by_hand

    seen = []

    def leave(*now):
        seen.append(now)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        player(jnp.int32(0), KEYS[0], on_progress=leave)
    assert seen == reports[:1]


def test_a_chunk_is_at_most_twice_the_last_one():
    """Updates that only fill a replay are fast, and those that learn later are slower."""
    sizer = ChunkSizer()
    lengths = []
    for _ in range(6):
        lengths.append(sizer.next_length(1000))
        sizer.record(lengths[-1], 1e-3 * lengths[-1])
    assert lengths == [1, 2, 4, 8, 16, 32]
    sizer.record(32, 64.0)
    assert sizer.next_length(1000) == 1
    sizer.record(100, 10.0)
    assert [sizer.next_length(1000) for _ in range(6)] == [2, 4, 8, 16, 20, 20]
    assert sizer.next_length(7) == 7
    sizer.record(7, 0.7)
    assert sizer.next_length(1000) == 20  # a chunk that was cut does not count


def test_progress_is_printed_every_ten_seconds(monkeypatch):
    reports, now = [], [0.0]
    monkeypatch.setattr(messages.time, "monotonic", lambda: now[0])
    on_progress = report_progress(reports.append)
    for now[0], finished in ((5.0, 1), (10.5, 2), (15.0, 3), (21.0, 3), (40.0, 1000)):
        on_progress(finished, 1000, int(now[0]))
    assert reports == [
        "2 of 1,000 episodes have finished; step 10 of those being played",
        "3 of 1,000 episodes have finished; step 21 of those being played",
    ]


@pytest.mark.usefixtures("steps_per_piece")
def test_the_step_budget_ends_the_round():
    """Steps after the last episode change nothing, and a budget of 0 ends the round early."""
    player = _player(fresh_levels(8, 8), 8)
    expected, _ = player(jnp.int32(1), KEYS[0])
    asked = []

    def three_more(wanted):
        asked.append(wanted)
        return wanted or (4 if asked.count(0) <= 3 else 0)

    results, _ = player(jnp.int32(1), KEYS[0], step_budget=three_more)
    jax.tree.map(np.testing.assert_array_equal, results, expected)
    assert asked[-4:] == [0] * 4
    cut_short, _ = player(jnp.int32(1), KEYS[0], step_budget=lambda wanted: 0)
    assert cut_short.episode_length.tolist() == [0] * 8
