"""Episodes with what a learner would make of them: for pages and tests that show each token."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.metrics import success
from stoix_like.algorithms.agent.setup import Agent
from stoix_like.algorithms.agent.speaking import model_speaker
from stoix_like.algorithms.text import advantages
from stoix_like.algorithms.text.reading import pack_rows, read_rows
from stoix_like.types import Array, Key, NetworkParams


def play_and_judge(
    agent: Agent,
    reward_scale: float,
    gamma: float,
    gae_lambda: float,
    params: NetworkParams,
    level_keys: Key,
    keys: Key,
) -> tuple[Episodes, Array, dict[str, Array]]:
    """(episodes on levels of evaluation, advantages [N, T, G] of their tokens, the world's metrics [N] by name).

    Without a critic all values are 0, and an advantage is what was earned from its token on.
    """
    lexicon, slots = jax.tree.map(jnp.asarray, agent.lexicon), agent.rules.slots
    speaker = model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, slots, agent.temperature)
    episodes, world = rollout(agent.dialogue, lexicon, agent.rules, speaker, level_keys, keys, held_out=True)
    if agent.model.critic == "separate":
        packed = pack_rows(slots, episodes.tokens, episodes.is_valid)
        _, value = read_rows(agent.model, params, lexicon.prompt, packed)
        episodes = episodes._replace(value=cast(Array, value).reshape(episodes.value.shape))
    advantage, _ = advantages.of_episodes(episodes, episodes.value, reward_scale, gamma, gae_lambda)
    return episodes, advantage, success(agent.dialogue, world)
