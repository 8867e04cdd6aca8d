"""Episodes played in pieces equal episodes played at once; the caller paces the pieces, and reports between them."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_same_bits
from support.marks import full

import stoix_like as sl
from stoix_like.evaluation import episodes
from stoix_like.runtime.console import messages
from stoix_like.runtime.evaluators import episode_player
from stoix_like.runtime.evaluators.episode_player import (
    EpisodePlayer,
    PlayProgress,
    fresh_levels,
    frozen_levels,
    play_to_end,
)
from stoix_like.runtime.evaluators.scores import Evaluator, Levels
from stoix_like.runtime.evaluators.timing import ChunkSizer
from stoix_like.types import MemoryPolicy, role_key

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


@pytest.fixture(params=[full(1), 3, full(1000)])
def steps_per_piece(request, monkeypatch):
    monkeypatch.setattr(ChunkSizer, "next_length", lambda self, most: min(request.param, most))


def _player(schedule, num_episodes, **options):
    return EpisodePlayer(_maze(), _remembered(), schedule, num_episodes=num_episodes, num_envs=8, **options)


def _watched(playing, seen):
    """The same player, whose progress is appended to `seen`."""

    def sends(steps=None):
        seen.append(playing.send(steps))
        return seen[-1]

    def watched():
        try:
            progress = sends()
            while True:
                progress = sends((yield progress))
        except StopIteration as end:
            return end.value

    return watched()


@pytest.mark.full
@pytest.mark.usefixtures("steps_per_piece")
@pytest.mark.parametrize("deterministic", [False, full(True)])
def test_fresh_levels_in_pieces(deterministic):
    play = functools.partial(episodes.evaluate, _maze(), _uniform, num_episodes=16, num_envs=8)
    expected = jax.jit(functools.partial(play, deterministic=deterministic))(jnp.int32(1), KEYS[0])
    player = _player(fresh_levels(16, 8), 16, deterministic=deterministic)
    results, decisions = play_to_end(player.play(jnp.int32(1), KEYS[0]))
    jax.tree.map(np.testing.assert_array_equal, results, expected)
    np.testing.assert_array_equal(decisions, results.episode_length)
    assert len(set(results.episode_length.tolist())) > 2


@pytest.mark.usefixtures("steps_per_piece")
def test_frozen_levels_of_several_seeds():
    """20 levels in rounds of 8: the last is filled up with the first four."""
    levels = jax.random.split(jax.random.key(5), 20)
    preferred = jnp.arange(3)
    player = _player(frozen_levels(levels, 8), 20, num_seeds=3, deterministic=False)
    seen = []
    results, decisions = play_to_end(_watched(player.play(preferred, KEYS), seen))
    assert results.episode_return.shape == decisions.shape == (3, 20)
    assert {progress.episodes for progress in seen} == {60}
    assert max(progress.finished for progress in seen) == seen[-1].finished == 60
    play = functools.partial(episodes.evaluate_levels, _maze(), _uniform, num_envs=8, deterministic=False)
    for seed in range(3):
        expected = jax.jit(play)(preferred[seed], jnp.concatenate([levels, levels[:4]]), KEYS[seed])
        jax.tree.map(lambda x, y, seed=seed: np.testing.assert_array_equal(x[seed], y[:20]), results, expected)
    assert (results.episode_length[0] != results.episode_length[1]).any()


def test_scores_of_several_seeds_are_those_of_each_and_have_the_memory_of_its_policy():
    """A seed alone, and its place among three; both with the evaluation key of update 7."""
    policy, preferred = _remembered(), jnp.arange(3)
    every = Evaluator(_maze(), policy, Levels(12), 8, 3, mode="sampled")(preferred, KEYS, 7)
    alone = Evaluator(_maze(), policy, Levels(12), 8, mode="sampled")
    for seed in range(3):
        one = alone(preferred[seed], KEYS[seed], 7)
        assert_same_bits(one.results, {name: values[seed][None] for name, values in every.results.items()})
        np.testing.assert_array_equal(one.memory, one.results["episode_length"])
    np.testing.assert_array_equal(every.memory, every.results["episode_length"])
    given = play_to_end(alone.play_with_key(preferred[2], role_key(KEYS[2], "evaluation", 7)))
    assert_same_bits(given.results, one.results)
    assert (alone(preferred[2], KEYS[2], 8).results["episode_length"] != one.results["episode_length"]).any()


def test_fresh_levels_are_padded_to_whole_rounds():
    """12 episodes in rounds of 8 are those of one round of 12: without sampling, a level alone decides its episode."""
    play = functools.partial(episodes.evaluate, _maze(), _uniform, num_episodes=12)
    expected = jax.jit(play)(jnp.int32(1), KEYS[0])
    results, _ = play_to_end(_player(fresh_levels(12, 8), 12).play(jnp.int32(1), KEYS[0]))
    jax.tree.map(np.testing.assert_array_equal, results, expected)


def test_progress_is_that_before_every_piece_and_the_caller_may_leave(monkeypatch):
    monkeypatch.setattr(ChunkSizer, "next_length", lambda self, most: 1)
    seen = []
    player = _player(fresh_levels(16, 8), 16)
    results, _ = play_to_end(_watched(player.play(jnp.int32(0), KEYS[0]), seen))
    by_hand = []
    for r, lengths in enumerate(results.episode_length.reshape(2, 8)):
        for step in range(lengths.max() + 1):
            is_over = step == lengths.max()
            by_hand.append(PlayProgress(8 * r + (lengths <= step).sum(), 16, step, is_over, 1 - is_over))
    assert seen == by_hand

    asked, playing = [], player.play(jnp.int32(0), KEYS[0])

    def leave(steps):
        asked.append(steps)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        play_to_end(playing, agree=leave)
    assert asked == [1]
    assert playing.gi_frame is None  # closed


def test_a_player_remembers_over_rounds_and_calls_how_long_a_step_takes(monkeypatch):
    """A step takes an eighth of a second, so that 16 are wanted once, after pieces of 1, 2, 4 and 8, it is known."""
    now, clock = [0.0], SimpleNamespace(monotonic=lambda: now[0])
    player = _player(fresh_levels(16, 8), 16)
    player.compile(jnp.int32(0), KEYS[0])
    advance = player._programs.advance

    def slow(params, playing, key, steps):
        before = int(playing.step)
        playing, count = advance(params, playing, key, steps)
        now[0] += 0.125 * (int(playing.step) - before)
        return playing, count

    player._programs = player._programs._replace(advance=slow)
    monkeypatch.setattr(episode_player, "time", clock)
    wanted = []
    for _ in range(2):
        play_to_end(player.play(jnp.int32(0), KEYS[0]), agree=lambda steps: wanted.append(steps) or steps)
    lengths = [steps for steps in wanted if steps]
    assert lengths[:4] == [1, 2, 4, 8]
    assert set(lengths[4:]) == {16}
    assert wanted.count(0) == 4  # at the end of each round


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


def test_progress_is_reported_every_ten_seconds(monkeypatch):
    reports, now = [], [0.0]
    monkeypatch.setattr(messages, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def playing():
        for now[0], finished in ((0.0, 0), (5.0, 1), (10.5, 2), (15.0, 3), (21.0, 3), (40.0, 1000)):
            assert (yield PlayProgress(finished, 1000, int(now[0]), finished == 1000, 7)) == 7
        return "scores"

    assert play_to_end(playing(), reports.append) == "scores"
    assert reports == [
        "2 of 1,000 episodes have finished; step 10 of those being played",
        "3 of 1,000 episodes have finished; step 21 of those being played",
    ]


@pytest.mark.usefixtures("steps_per_piece")
def test_the_number_agreed_on_is_played_and_0_ends_the_round():
    """Steps after the last episode change nothing, as where another process plays on, and 0 ends the round early."""
    player = _player(fresh_levels(8, 8), 8)
    expected, _ = play_to_end(player.play(jnp.int32(1), KEYS[0]))
    asked = []

    def three_more(wanted):
        asked.append(wanted)
        return wanted or (4 if asked.count(0) <= 3 else 0)

    results, _ = play_to_end(player.play(jnp.int32(1), KEYS[0]), agree=three_more)
    jax.tree.map(np.testing.assert_array_equal, results, expected)
    assert asked[-4:] == [0] * 4
    cut_short, _ = play_to_end(player.play(jnp.int32(1), KEYS[0]), agree=lambda wanted: 0)
    assert cut_short.episode_length.tolist() == [0] * 8
