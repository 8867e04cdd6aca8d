"""A tiny agent of FrozenLake, and a speaker that says what a test tells it to."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import stoix_like as sl
from stoix_like.algorithms.agent.setup import make_agent
from stoix_like.algorithms.agent.speaking import Answer, Speaker
from stoix_like.language.tokenizers import word_tokenizer
from stoix_like.language.words import WORDS
from stoix_like.runtime.runs.agents import make_text_world

TOKENIZER = word_tokenizer(WORDS)
TINY = {
    "num_envs": 8,
    "hidden_dim": 16,
    "num_layers": 2,
    "num_heads": 2,
    "group_size": 4,
    "num_turns": 3,
    "actions_per_turn": 2,
    "answer_length": 10,
    "num_minibatches": 2,
    "num_updates": 6,
    "num_eval_episodes": 4,
    "num_eval_samples": 2,
    "num_shown_episodes": 0,
    "kwargs": {"size": 3, "intended_p": 1.0, "max_actions": 5},
}


def tiny_config(**leaves):
    return sl.agent_config(**(TINY | leaves))


@functools.cache
def tiny_world(intended_p=1.0, num_turns=3, actions_per_turn=2):
    kwargs = TINY["kwargs"] | {"intended_p": intended_p}
    config = tiny_config(kwargs=kwargs, num_turns=num_turns, actions_per_turn=actions_per_turn)
    return make_text_world(sl.make_env("FrozenLake-text-v0", kwargs=kwargs), config.agent)


def tiny_agent(world=None, critic="stopped", **leaves):
    """(agent, its parameters, its tables on the device)."""
    agent = make_agent(world or tiny_world(), TOKENIZER, tiny_config(**leaves), critic)
    params = jax.jit(agent.model.init)(jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 100))  # first values are 0, and no test is to rely on it
    params = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(keys), x.shape), params)
    return agent, params, jax.tree.map(jnp.asarray, agent.lexicon)


def scripted_speaker(agent, lines):
    """A speaker whose turn t says `lines[t]`, the same in every row, or for each row its own text."""
    slots = agent.rules.slots
    num_rows = len(lines[0]) if isinstance(lines[0], (list, tuple)) else 1
    tokens, is_valid = np.zeros((2, len(lines), num_rows, slots.answer), np.int32)
    for turn, said in enumerate(lines):
        for row, text in enumerate(said if isinstance(said, (list, tuple)) else [said]):
            ids = TOKENIZER.encode(text)
            assert len(ids) <= slots.answer
            tokens[turn, row, : len(ids)], is_valid[turn, row, : len(ids)] = ids, 1

    def answer(memory, user_turn, _keys):
        shape = (user_turn.tokens.shape[0], slots.answer)
        said, valid = (jnp.broadcast_to(jnp.asarray(x)[user_turn.turn], shape) for x in (tokens, is_valid))
        valid = valid.astype(bool) & user_turn.is_active[:, None]
        nothing = jnp.zeros(shape)
        ends = jnp.any((said == agent.lexicon.ends[0]) & valid, axis=1)
        return Answer(jnp.where(valid, said, 0), valid, nothing, nothing, ~ends), memory

    return Speaker(lambda _: None, answer)
