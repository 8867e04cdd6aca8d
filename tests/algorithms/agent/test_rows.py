"""Episodes that are over leave the batch, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
from support.agents import tiny_agent

from stoix_like.algorithms.agent import memory as memories
from stoix_like.algorithms.agent import rows
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.algorithms.agent.speaking import Speaker
from stoix_like.ops import trees

NUM_GROUPS = 16  # of 4 members: 64 episodes


def test_batches_fall_in_size_while_they_are_worth_a_loop():
    assert rows.batch_sizes(128) == (128, 96, 64, 32)
    assert rows.batch_sizes(30) == (30, 23)
    assert rows.batch_sizes(16) == (16,)
    assert rows.batch_sizes(3) == (3,)


def test_those_that_go_on_are_kept_in_their_shards():
    is_over = jnp.array([1, 0, 1, 0, 0, 1, 1, 1], bool)
    assert rows.num_going_on(is_over, 2) == 2
    assert rows.num_going_on(is_over, 1) == 3
    np.testing.assert_array_equal(rows.choose(is_over, 1, 4), [[1, 3, 4, 0]])
    kept = rows.choose(is_over, 2, 2)
    np.testing.assert_array_equal(kept, [[1, 3], [0, 1]])
    x = jnp.arange(16).reshape(8, 2)
    np.testing.assert_array_equal(rows.take(x, kept), x[jnp.array([1, 3, 4, 5])])
    np.testing.assert_array_equal(rows.take(x.T, kept, axis=1), x[jnp.array([1, 3, 4, 5])].T)


def reading_speaker(agent, params, lexicon):
    """A speaker that acts at random, and reads all that is said: its "log-probabilities" are its hidden states."""
    slots = agent.rules.slots
    by_chance = random_speaker(agent.dialogue, lexicon, slots, agent.rules.actions_per_turn)

    def begin(num_rows):
        num_slots = slots.per_turn * slots.turns
        return memories.begin(agent.model, params, lexicon.prompt, num_rows, num_slots)

    def answer(memory, user_turn, keys):
        said, _ = by_chance.answer(None, user_turn, keys)
        _, memory = memories.read(agent.model, params, memory, user_turn.tokens, user_turn.is_valid)
        hidden, memory = memories.read(agent.model, params, memory, said.tokens, said.is_valid)
        noted = jnp.where(user_turn.is_active[:, None], hidden[:, : slots.answer], 0.0)
        return said._replace(log_prob=noted), memory

    return Speaker(begin, answer, memories.take_rows)


def test_episodes_are_the_same_where_those_that_are_over_leave(monkeypatch):
    """Rows that stay have their world, keys and memory with them. With one size alone nothing leaves."""
    agent, params, lexicon = tiny_agent(context="full", num_turns=6, num_layers=1)
    keys = jax.random.split(jax.random.key(5), NUM_GROUPS)
    rules = agent.rules._replace(num_shards=4)

    def play(keys):
        speaker = reading_speaker(agent, params, lexicon)
        episodes, world = rollout(agent.dialogue, lexicon, rules, speaker, keys, keys)
        return episodes._replace(tokens=jnp.where(episodes.is_valid, episodes.tokens, -1)), world

    monkeypatch.setattr(rows, "LEAST_ROWS", 4)
    episodes, world = jax.jit(play)(keys)
    monkeypatch.setattr(rows, "SHARES", (1.0,))
    of_all, world_of_all = jax.jit(lambda keys: play(keys))(keys)  # noqa: PLW0108 - or the sizes before would be used
    left = np.asarray(episodes.turns.was_played.sum(axis=0))  # [T]
    assert left[0] == 64
    assert left[-1] < 16  # all sizes were used
    assert len(set(left.tolist())) > 3
    found, expected = (jax.tree.map(trees.key_data, x) for x in ((episodes, world), (of_all, world_of_all)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
    assert np.abs(episodes.log_prob).max() > 0.1
