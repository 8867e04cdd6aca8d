"""Agents that write their moves: the loop of turns, and what it consists of.

world = sl.make_text_world(sl.make_env("FrozenLake-text-v0"))
agent = sl.agent.make_agent(world, sl.make_tokenizer(), sl.agent_config())
params = agent.model.init(jax.random.key(0))
lexicon = jax.tree.map(jnp.asarray, agent.lexicon)
speaker = sl.agent.model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, agent.rules.slots, 1.0)
keys = jax.random.split(jax.random.key(1), 4)
episodes, worlds = sl.agent.rollout(agent.dialogue, lexicon, agent.rules, speaker, keys, keys)
"""

from stoix_like.algorithms.agent.loop import AgentRules, rollout
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.algorithms.agent.setup import Agent, make_agent
from stoix_like.algorithms.agent.slots import Slots
from stoix_like.algorithms.agent.speaking import Speaker, model_speaker

__all__ = ["Agent", "AgentRules", "Slots", "Speaker", "make_agent", "model_speaker", "random_speaker", "rollout"]
