"""What PPO over tokens remembers and is made for: its state, its numbers, its fixed settings."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.counting import Counts
from stoix_like.algorithms.agent.setup import Agent
from stoix_like.algorithms.minibatch import num_logical_shards
from stoix_like.algorithms.optimizer import OptimizerState, init_optimizer
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.agent_runs import AgentConfig
from stoix_like.language.dialogue import Lexicon
from stoix_like.types import Array, Key, NetworkParams, role_key

OF_GROUPS = ("grpo", "rloo")  # estimators of advantages, which are compared within groups and standardized no further


class TokenPPOHyper(NamedTuple):
    """Numbers that may differ between lanes and that a sweep may replace without recompiling. [] float32."""

    actor_lr: Array
    critic_lr: Array
    max_grad_norm: Array
    clip_eps: Array  # below 1
    clip_eps_high: Array  # above 1
    dual_clip: Array  # read only if the configuration sets it
    value_clip_eps: Array  # read only if the configuration sets it
    ent_coef: Array
    vf_coef: Array
    gamma: Array  # per token
    gae_lambda: Array  # per token
    turn_gamma: Array  # per turn; read by bilevel_gae alone
    kl_coef: Array  # read only if the configuration sets it
    critic_warmup_updates: Array  # updates in which the critic alone learns
    reward_scale: Array
    num_updates: Array  # updates over which the rates fall to 0


class TokenPPOState(NamedTuple):
    """Everything that an update reads and writes. Of it, lexicon and tokenizer are inputs and are not saved."""

    params: NetworkParams
    hyper: TokenPPOHyper
    key: Key  # the root, never changed
    step: Array  # [] int32, updates done
    optimizer: OptimizerState
    counts: Counts
    groups: Array  # [M] int32, the numbers of the groups, divided over the devices
    reference: NetworkParams | None  # which the policy is held to, an input too; None without
    lexicon: Lexicon
    tokenizer: Array  # [32] uint8, the hash of the vocabulary, an input too


class TokenPPOSettings(NamedTuple):
    """What the compiled program is made for, beside the agent."""

    epochs: int
    num_minibatches: int
    num_microbatches: int
    num_shards: int
    clips_value: bool
    clips_twice: bool  # ratios of negative advantages
    decays_rates: bool
    standardization: str  # "batch", "minibatch" or "none"
    advantage_estimator: str  # "gae", "bilevel_gae", "grpo" or "rloo"
    rollout_filter_ratio: float  # of the groups that are learned from
    loss_mask: str  # the tokens with a loss: "response" or "all"
    recomputes: bool  # the log-probabilities of the sampler
    has_reference: bool
    entropy_of: str  # the tokens with a bonus: "all" or "answer"

    @property
    def learns_values(self) -> bool:
        """Advantages are of a critic."""
        return self.advantage_estimator not in OF_GROUPS


class Setup(NamedTuple):
    """What the functions of this module need beside the state."""

    agent: Agent
    settings: TokenPPOSettings


def settings_of(config: AgentConfig, agent: Agent) -> TokenPPOSettings:
    """The fixed part of the program."""
    core, optimization, group_size = config.training_core, config.optimization, config.agent.group_size
    rows_per_group = group_size * (1 if agent.rules.slots.is_conversation else agent.rules.slots.turns)
    num_groups = config.environment.num_envs // group_size
    section = config.token_ppo
    parts = core.num_minibatches * section.num_microbatches
    return TokenPPOSettings(
        epochs=core.epochs,
        num_minibatches=core.num_minibatches,
        num_microbatches=section.num_microbatches,
        num_shards=num_logical_shards(num_groups, rows_per_group, parts),
        clips_value=optimization.value_clip_eps is not None,
        clips_twice=section.dual_clip is not None,
        decays_rates=optimization.decay_learning_rates,
        standardization="none" if section.advantage_estimator in OF_GROUPS else optimization.standardize_advantages,
        advantage_estimator=section.advantage_estimator,
        rollout_filter_ratio=section.rollout_filter_ratio,
        loss_mask=section.loss_mask,
        recomputes=section.old_log_probs == "recomputed" or section.loss_mask == "all",
        has_reference=section.kl_coef > 0.0,
        entropy_of=section.entropy_of,
    )


def make_hyper(config: AgentConfig) -> TokenPPOHyper:
    """The numbers of the configuration, float32 on the host; a null one becomes 0 and is not read."""
    values: dict[str, Any] = {name: np.float32(get_leaf(config, name) or 0.0) for name in TokenPPOHyper._fields}
    return TokenPPOHyper(**values)


def init(setup: Setup, hyper: TokenPPOHyper, num_groups: int, key: Key) -> TokenPPOState:
    """A fresh state from the root key."""
    params = setup.agent.model.init(role_key(key, "params"))
    return TokenPPOState(
        params=params,
        hyper=jax.tree.map(jnp.asarray, hyper),
        key=key,
        step=jnp.int32(0),
        optimizer=init_optimizer(params),
        counts=Counts.zero(),
        groups=jnp.arange(num_groups, dtype=jnp.int32),
        reference=params._replace(critic=None) if setup.settings.has_reference else None,
        lexicon=jax.tree.map(jnp.asarray, setup.agent.lexicon),
        tokenizer=jnp.asarray(setup.agent.tokenizer_hash),
    )
