"""Episodes of a tiny agent as rows of PPO over tokens, and advantages over turns and tokens in plain Python."""

import functools

import jax
import numpy as np
from support.agents import TOKENIZER, tiny_config, tiny_world

from stoix_like.algorithms.agent.setup import make_agent
from stoix_like.algorithms.text import token_ppo, token_state
from stoix_like.algorithms.text.token_loss import loss_sum
from stoix_like.algorithms.text.token_rows import compute_rows
from stoix_like.algorithms.text.token_state import Setup


@functools.cache
def played(context="single_turn", critic="stopped", **leaves):
    """(setup, a state with parameters in general position, its episodes, rows)."""
    config = tiny_config(context=context, critic=critic, value_clip_eps=0.5, ent_coef=0.01, **leaves)
    agent = make_agent(tiny_world(), TOKENIZER, config, critic)
    setup = Setup(agent, token_state.settings_of(config, agent))
    state = jax.jit(lambda key: token_state.init(setup, token_state.make_hyper(config), 2, key))(jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 100))
    state = state._replace(
        params=jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(keys), x.shape), state.params)
    )
    episodes, _ = jax.jit(functools.partial(token_ppo.collect, setup))(state)
    rows = jax.jit(functools.partial(compute_rows, setup))(state, episodes)
    return setup, state, episodes, rows


def loss_of(setup, state, rows, params=None):
    return loss_sum(setup, state.hyper, state.lexicon.prompt, params or state.params, rows)


def bilevel_in_plain_python(value, reward, is_chosen, gamma, gae_lambda, turn_gamma):
    advantages = np.zeros_like(value)
    for row in range(len(value)):
        turns = [t for t in range(value.shape[1]) if is_chosen[row, t].any()]
        after, following = 0.0, 0.0
        for t in reversed(turns):
            tokens = np.flatnonzero(is_chosen[row, t])
            last = value[row, t, tokens[-1]]
            after = reward[row, t] + turn_gamma * following - last + turn_gamma * gae_lambda * after
            following, target = last, after + last
            of_token, next_value = 0.0, 0.0
            for place, token in reversed(list(enumerate(tokens))):
                earned = target if place == len(tokens) - 1 else 0.0
                delta = earned + gamma * next_value - value[row, t, token]
                of_token = delta + gamma * gae_lambda * of_token
                advantages[row, t, token], next_value = of_token, value[row, t, token]
    return advantages
