"""What all loops play: an agent, the parameters of its policy, its levels and its keys."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.playing import WorldState
from stoix_like.algorithms.agent.setup import Agent, make_agent
from stoix_like.algorithms.agent.speaking import model_speaker
from stoix_like.algorithms.text import pretraining
from stoix_like.bench.agents.python_lake import PythonLake, copy_lakes
from stoix_like.config.sections.agent_runs import agent_config, pretrain_config
from stoix_like.envs import registry
from stoix_like.language.dialogue import Lexicon
from stoix_like.language.tokenizers import Tokenizer
from stoix_like.runtime.runs.agents import make_text_world, make_tokenizer
from stoix_like.types import Key, NetworkParams, TextWorld


class Case(NamedTuple):
    """What is played."""

    agent: Agent
    tokenizer: Tokenizer
    lexicon: Lexicon  # on the device
    params: NetworkParams
    level_keys: Key  # [M]
    keys: Key  # [M], of all else


def make_case(params: NetworkParams, leaves: dict[str, Any]) -> Case:
    """The case of a policy and of the leaves of an agent's configuration."""
    config, tokenizer = agent_config(**leaves), make_tokenizer()
    agent = make_agent(text_world(config), tokenizer, config)
    num_groups = config.environment.num_envs // config.agent.group_size
    level_keys, keys = (jax.random.split(jax.random.key(seed), num_groups) for seed in (1, 2))
    return Case(agent, tokenizer, jax.tree.map(jnp.asarray, agent.lexicon), params, level_keys, keys)


def text_world(config: Any) -> TextWorld:
    """The world of a configuration."""
    environment = config.environment
    return make_text_world(registry.make(environment.task_id, kwargs=environment.kwargs), config.agent)


def pretrained(leaves: dict[str, Any], num_updates: int, num_episodes: int) -> NetworkParams:
    """A policy that has learned the format of answers in its own context, and plays at random."""
    fixed = {"all_modes": False, "all_renderings": False, "num_minibatches": 1, "actor_lr": 0.003}
    fixed |= {"num_envs": num_episodes, "num_updates": num_updates}
    config = pretrain_config(**{name: value for name, value in leaves.items() if name != "group_size"} | fixed)
    learner = pretraining.make(text_world(config), make_tokenizer(), config)
    state = jax.jit(learner.init)(jax.random.key(0))
    update = jax.jit(learner.update, donate_argnums=0)
    for _ in range(num_updates):
        state, _ = update(state)
    params: NetworkParams = state.params
    return params


def compiled_rollout(case: Case) -> Any:
    """A function of no argument: the episodes and worlds of our loop, which is one compiled program."""
    agent = case.agent

    @jax.jit
    def run(lexicon: Lexicon, params: NetworkParams, level_keys: Key, keys: Key) -> tuple[Episodes, WorldState]:
        slots = agent.rules.slots
        speaker = model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, slots, agent.temperature)
        return rollout(agent.dialogue, lexicon, agent.rules, speaker, level_keys, keys)

    return functools.partial(run, case.lexicon, case.params, case.level_keys, case.keys)


def lakes_of(case: Case) -> list[PythonLake]:
    """The worlds that our loop starts in, copied: groups of equal ones."""
    states, _ = jax.jit(jax.vmap(case.agent.dialogue.world.env.reset))(case.level_keys)
    size = case.agent.rules.group_size
    repeated = jax.tree.map(lambda x: jnp.repeat(x, size, axis=0), states)
    return copy_lakes(repeated, case.agent.rules.max_actions)


def member_keys(case: Case) -> Key:
    """[N] keys that the answers of our loop are sampled with: those of its groups, and then of their members."""

    def of_group(key: Key) -> Key:
        members = jnp.arange(case.agent.rules.group_size)
        return jax.vmap(functools.partial(jax.random.fold_in, jax.random.split(key)[0]))(members)

    return jax.jit(lambda keys: jax.vmap(of_group)(keys).reshape(-1))(case.keys)


def texts_of(case: Case, episodes: Episodes) -> list[str]:
    """What was said in each of our episodes."""
    tokens, is_valid = (jax.device_get(x).reshape(x.shape[0], -1) for x in (episodes.tokens, episodes.is_valid))
    return [case.tokenizer.to_text(row[valid]) for row, valid in zip(tokens, is_valid, strict=True)]
