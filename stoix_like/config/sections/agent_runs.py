"""The configurations of runs whose agents write: learning by PPO over tokens, and pretraining.

Imports only the standard library, as all of the configuration.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from stoix_like.config.layers import resolve
from stoix_like.config.sections.agent import (
    AgentSectionConfig,
    DecoderSectionConfig,
    FineTuneSectionConfig,
    PretrainSectionConfig,
    TokenPPOSectionConfig,
)
from stoix_like.config.sections.runs import ArchitectureConfig, EnvironmentConfig, RunConfig, TrainingCoreConfig


def _text_environment() -> EnvironmentConfig:
    return EnvironmentConfig(task_id="FrozenLake-text-v0", num_envs=128)


def _whole_episodes() -> TrainingCoreConfig:
    """A step is an episode, of which an update plays one in each environment."""
    return TrainingCoreConfig(rollout_length=1, num_updates=100, epochs=1, num_minibatches=4, gamma=1.0)


def _small_decoder() -> ArchitectureConfig:
    return ArchitectureConfig(hidden_dim=96)


@dataclass(frozen=True)
class AgentConfig(RunConfig):
    """The configuration of an agent that writes its moves, and learns by PPO over tokens."""

    environment: EnvironmentConfig = dataclasses.field(default_factory=_text_environment)
    training_core: TrainingCoreConfig = dataclasses.field(default_factory=_whole_episodes)
    architecture: ArchitectureConfig = dataclasses.field(default_factory=_small_decoder)
    agent: AgentSectionConfig = dataclasses.field(default_factory=AgentSectionConfig)
    decoder: DecoderSectionConfig = dataclasses.field(default_factory=DecoderSectionConfig)
    token_ppo: TokenPPOSectionConfig = dataclasses.field(default_factory=TokenPPOSectionConfig)


@dataclass(frozen=True)
class PretrainConfig(RunConfig):
    """The configuration of pretraining an agent's model on the format of answers."""

    environment: EnvironmentConfig = dataclasses.field(default_factory=_text_environment)
    training_core: TrainingCoreConfig = dataclasses.field(default_factory=_whole_episodes)
    architecture: ArchitectureConfig = dataclasses.field(default_factory=_small_decoder)
    agent: AgentSectionConfig = dataclasses.field(default_factory=AgentSectionConfig)
    decoder: DecoderSectionConfig = dataclasses.field(default_factory=DecoderSectionConfig)
    pretrain: PretrainSectionConfig = dataclasses.field(default_factory=PretrainSectionConfig)


@dataclass(frozen=True)
class FineTuneConfig(RunConfig):
    """The configuration of fine-tuning an agent's model on rows of written turns."""

    environment: EnvironmentConfig = dataclasses.field(default_factory=_text_environment)
    training_core: TrainingCoreConfig = dataclasses.field(default_factory=_whole_episodes)
    architecture: ArchitectureConfig = dataclasses.field(default_factory=_small_decoder)
    agent: AgentSectionConfig = dataclasses.field(default_factory=AgentSectionConfig)
    decoder: DecoderSectionConfig = dataclasses.field(default_factory=DecoderSectionConfig)
    fine_tune: FineTuneSectionConfig = dataclasses.field(default_factory=FineTuneSectionConfig)


#: The configuration of any run with a language model.
LanguageConfig = AgentConfig | PretrainConfig | FineTuneConfig


def agent_config(**leaves: Any) -> AgentConfig:
    """A checked configuration of an agent from leaves by name, as `ppo_config`: `agent_config(num_turns=5)`."""
    return resolve(AgentConfig(), leaves)


def pretrain_config(**leaves: Any) -> PretrainConfig:
    """A checked configuration of pretraining from leaves by name, as `ppo_config`: `pretrain_config(num_updates=9)`."""
    return resolve(PretrainConfig(), leaves)


def fine_tune_config(**leaves: Any) -> FineTuneConfig:
    """A checked configuration of fine-tuning from leaves by name, as `ppo_config`: `fine_tune_config(batch_size=8)`."""
    return resolve(FineTuneConfig(), leaves)
