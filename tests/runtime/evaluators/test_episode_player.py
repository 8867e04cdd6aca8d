"""Episodes in pieces are the episodes at once, and between the pieces they can be watched and stopped."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stoix_like as sl
from stoix_like.evaluation import episodes
from stoix_like.runtime.console import messages
from stoix_like.runtime.evaluators.episode_player import EpisodePlayer, fresh_levels, frozen_levels
from stoix_like.runtime.evaluators.pace import ChunkSizer
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
    monkeypatch.setattr(ChunkSizer, "length", lambda self, most: min(request.param, most))


def _player(schedule, num_episodes, **options):
    return EpisodePlayer(
        _maze(), _remembered(), schedule, num_episodes=num_episodes, num_envs=8, less_memory="", **options
    )


@pytest.mark.usefixtures("steps_per_piece")
@pytest.mark.parametrize("deterministic", [False, True])
def test_fresh_levels_in_pieces(deterministic):
    play = functools.partial(
        episodes.evaluate, _maze(), _uniform, num_episodes=16, num_envs=8, deterministic=deterministic
    )
    expected = jax.jit(play)(jnp.int32(1), KEYS[0])
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
    told = []
    results, decisions = player(preferred, KEYS, watch=lambda *seen: told.append(seen))
    assert results.episode_return.shape == decisions.shape == (3, 20)
    assert {total for _, total, _ in told} == {60}
    assert max(finished for finished, *_ in told) == told[-1][0] == 60
    play = functools.partial(episodes.evaluate_levels, _maze(), _uniform, num_envs=8, deterministic=False)
    for seed in range(3):
        expected = jax.jit(play)(preferred[seed], jnp.concatenate([levels, levels[:4]]), KEYS[seed])
        jax.tree.map(lambda x, y, seed=seed: np.testing.assert_array_equal(x[seed], y[:20]), results, expected)
    assert (results.episode_length[0] != results.episode_length[1]).any()


def test_who_watches_is_told_after_every_piece_and_can_end_it(monkeypatch):
    monkeypatch.setattr(ChunkSizer, "length", lambda self, most: 1)
    told = []
    player = _player(fresh_levels(16, 8), 16)
    results, _ = player(jnp.int32(0), KEYS[0], watch=lambda *seen: told.append(seen))
    rounds = results.episode_length.reshape(2, 8)
    assert len(told) == rounds.max(axis=1).sum()
    by_hand = [
        (8 * r + (lengths <= step).sum(), 16, step)
        for r, lengths in enumerate(rounds)
        for step in range(1, lengths.max() + 1)
    ]
    assert told == by_hand

    seen = []

    def leave(*now):
        seen.append(now)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        player(jnp.int32(0), KEYS[0], watch=leave)
    assert seen == told[:1]


def test_a_chunk_is_at_most_twice_the_last_one():
    """Updates that only fill a replay are fast: what they promise for those that learn is not believed at once."""
    pace = ChunkSizer()
    lengths = []
    for _ in range(6):
        lengths.append(pace.length(1000))
        pace.update(lengths[-1], 1e-3 * lengths[-1])
    assert lengths == [1, 2, 4, 8, 16, 32]
    pace.update(32, 64.0)
    assert pace.length(1000) == 1
    pace.update(100, 10.0)
    assert [pace.length(1000) for _ in range(6)] == [2, 4, 8, 16, 20, 20]
    assert pace.length(7) == 7
    pace.update(7, 0.7)
    assert pace.length(1000) == 20  # that one was cut short by what was due does not count


def test_a_sign_of_life_comes_now_and_then(monkeypatch):
    told, now = [], [0.0]
    monkeypatch.setattr(messages.time, "monotonic", lambda: now[0])
    sign = messages.Heartbeat(told.append)
    for now[0], finished in ((5.0, 1), (10.5, 2), (15.0, 3), (21.0, 3), (40.0, 1000)):
        sign(finished, 1000, int(now[0]))
    assert told == [
        "2 of 1,000 episodes have finished; step 10 of those being played",
        "3 of 1,000 episodes have finished; step 21 of those being played",
    ]


@pytest.mark.usefixtures("steps_per_piece")
def test_who_allows_the_pieces_ends_the_round():
    """As the first of several processes does: steps beyond the last episode change nothing, and 0 ends it early."""
    player = _player(fresh_levels(8, 8), 8)
    expected, _ = player(jnp.int32(1), KEYS[0])
    asked = []

    def three_more(wanted):
        asked.append(wanted)
        return wanted or (4 if asked.count(0) <= 3 else 0)

    results, _ = player(jnp.int32(1), KEYS[0], allow=three_more)
    jax.tree.map(np.testing.assert_array_equal, results, expected)
    assert asked[-4:] == [0] * 4
    cut_short, _ = player(jnp.int32(1), KEYS[0], allow=lambda wanted: 0)
    assert cut_short.episode_length.tolist() == [0] * 8
