"""Episodes of a language run, token by token: who wrote each, how probable it was, and what came of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.sections.agent_runs import AgentConfig, LanguageConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.spelling import training_name

if TYPE_CHECKING:
    from stoix_like.algorithms.agent.episodes import Episodes
    from stoix_like.language.tokenizers import Tokenizer
    from stoix_like.runtime.runs.saved import SavedRun


class TextToken(NamedTuple):
    """One token of a turn."""

    text: str
    is_chosen: bool  # by the agent; else the world wrote it
    log_prob: float  # when it was chosen, in nats
    value: float  # of the state before it
    advantage: float


class TextTurn(NamedTuple):
    """A turn: what the world wrote, then what the agent did."""

    tokens: list[TextToken]
    reward: float  # of the world
    penalty: float
    is_well_formed: bool
    num_actions: int

    def text(self, *, chosen: bool) -> str:
        """The agent's text, or the world's."""
        return "".join(token.text for token in self.tokens if token.is_chosen == chosen)


class TextEpisode(NamedTuple):
    """An episode."""

    level: int  # its number in the level set
    turns: list[TextTurn]
    succeeded: bool | None  # None in a world that does not say so

    @property
    def episode_return(self) -> float:
        """Rewards and penalties."""
        return sum(turn.reward + turn.penalty for turn in self.turns)


#: (parameters, seed of the sampling) -> episodes
TextPlayer = Callable[[Any, int], list[TextEpisode]]


def play_text(
    saved: SavedRun, num_episodes: int, seed: int, index: int = 0, world: Mapping[str, Any] | None = None
) -> list[TextEpisode]:
    """Episodes of a language run, one on each of the first levels of evaluation.

    Args:
        saved: the run.
        num_episodes: how many.
        seed: of the sampling.
        index: of the run's seed.
        world: {leaf: value} of another world than the run's, such as task_id and kwargs.

    Raises:
        ConfigError: a run without a language model, or a world that its tokens cannot write.
    """
    config = replace_leaves(_language_config(saved), dict(world or {}))
    return text_player(config, num_episodes)(saved.seed_params(index), seed)


def text_player(config: LanguageConfig, num_episodes: int) -> TextPlayer:
    """A function that plays an episode on each of the first levels of evaluation, compiled when it is first called.

    Raises ConfigError if the tokens of the agent cannot write its world.
    """
    import jax
    import jax.numpy as jnp

    from stoix_like.algorithms.agent.scoring import make_items
    from stoix_like.algorithms.agent.setup import make_agent
    from stoix_like.algorithms.text.inspection import play_and_judge
    from stoix_like.runtime.runs.agents import make_text_world, make_tokenizer
    from stoix_like.runtime.runs.build import make_env

    config = replace_leaves(config, {"group_size": 1})
    text_world, tokenizer = make_text_world(make_env(config.environment), config.agent), make_tokenizer()
    critic = config.token_ppo.critic if isinstance(config, AgentConfig) else None
    agent = make_agent(text_world, tokenizer, config, critic)
    levels = jax.random.wrap_key_data(jnp.asarray(make_items(agent, None, num_episodes)))
    core, scale = config.training_core, config.optimization.reward_scale
    judged = jax.jit(functools.partial(play_and_judge, agent, scale, core.gamma, core.gae_lambda))

    def play(params: Any, seed: int) -> list[TextEpisode]:
        found = judged(params, levels, jax.random.split(jax.random.key(seed), num_episodes))
        return _episodes(tokenizer, *jax.device_get(found))

    return play


def _episodes(
    tokenizer: Tokenizer, episodes: Episodes, advantage: np.ndarray, metrics: Mapping[str, np.ndarray]
) -> list[TextEpisode]:
    from stoix_like.algorithms.agent.scoring import SUCCESS

    solved = metrics.get(SUCCESS)
    return [
        TextEpisode(row, _turns(episodes, advantage, tokenizer, row), None if solved is None else bool(solved[row]))
        for row in range(episodes.tokens.shape[0])
    ]


def _language_config(saved: SavedRun) -> LanguageConfig:
    if isinstance(saved.config, LanguageConfig):
        return saved.config
    raise ConfigError(
        f"{saved.path} has no language model", f"give a run of {training_name('agent')} or {training_name('pretrain')}"
    )


def _turns(episodes: Episodes, advantage: np.ndarray, tokenizer: Tokenizer, row: int) -> list[TextTurn]:
    """The turns that were played in a row of episodes [N, T, ...]."""
    turns = []
    num_world = episodes.tokens.shape[-1] - episodes.log_prob.shape[-1]
    for turn in np.flatnonzero(episodes.turns.was_played[row]):
        tokens = []
        for slot in np.flatnonzero(episodes.is_valid[row, turn]):
            is_chosen, place = bool(slot >= num_world), slot - num_world
            numbers = (episodes.log_prob, episodes.value, advantage)
            of_token = [float(x[row, turn, place]) if is_chosen else 0.0 for x in numbers]
            text = tokenizer.to_text([int(episodes.tokens[row, turn, slot])])
            tokens.append(TextToken(text, is_chosen, *of_token))
        facts = episodes.turns
        turns.append(
            TextTurn(
                tokens,
                float(facts.reward[row, turn]),
                float(facts.penalty[row, turn]),
                bool(facts.is_well_formed[row, turn]),
                int(facts.num_actions[row, turn]),
            )
        )
    return turns
