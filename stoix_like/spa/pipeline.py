"""A pipeline of SPA: its configuration, its world and agents, and the parameters that stages hand on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from stoix_like.algorithms.agent.setup import Agent, make_agent
from stoix_like.config.dicts import config_to_dict
from stoix_like.config.sections.agent_runs import AgentConfig
from stoix_like.config.sections.spa import SPAConfig
from stoix_like.errors import CheckpointError
from stoix_like.language.tokenizers import Tokenizer
from stoix_like.runtime.console.installation import installed_version
from stoix_like.runtime.console.reporter import Reporter
from stoix_like.runtime.runs import agents
from stoix_like.runtime.runs.build import build, make_env
from stoix_like.runtime.stages.hashes import tree_hash
from stoix_like.runtime.stages.table import StageFiles
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.runtime.weights import parameters
from stoix_like.runtime.weights.parameters import PARAMETERS, ParametersMetadata
from stoix_like.spa.arms import PLAIN, PPO, PRETRAIN, Arm
from stoix_like.spa.folders import Layout
from stoix_like.spa.stage_configs import LATER, settings_of, stage_config
from stoix_like.types import NetworkParams, TextWorld

TOKENIZER = "tokenizer"  # fact of a stage: the hash of the vocabulary whose tokens its parameters speak


class Pipeline(NamedTuple):
    """What all stages need."""

    config: SPAConfig
    arm: Arm
    layout: Layout
    reporter: Reporter
    stop: StopRequest

    def settings(self, stage: str) -> dict[str, Any]:
        """{leaf: value} of all that a stage reads."""
        return settings_of(self.config, self.arm, stage)

    def stage_config(self, stage: str, **leaves: Any) -> Any:
        """The configuration of a stage's run, with further leaves of it."""
        return stage_config(self.config, self.arm, stage, leaves)


class StageAgent(NamedTuple):
    """The agent of a stage."""

    config: AgentConfig
    world: TextWorld
    tokenizer: Tokenizer
    agent: Agent


def agent_of(pipeline: Pipeline, stage: str) -> StageAgent:
    """The agent of a stage, without a critic. Raises ConfigError as `make_agent`."""
    config = pipeline.stage_config(stage, **LATER.get(stage, {}))
    world = agents.make_text_world(make_env(config.environment), config.agent)
    tokenizer = agents.make_tokenizer()
    return StageAgent(config, world, tokenizer, make_agent(world, tokenizer, config))


def check_agents(pipeline: Pipeline, stages: Sequence[str]) -> None:
    """Makes world and agent of stages, before anything of them is written; nothing is computed.

    Raises ConfigError or UnsupportedEnvironmentError if one of them cannot be made.
    """
    for stage in stages:
        if pipeline.arm.name == PLAIN:
            build("ppo", pipeline.stage_config(PPO))
        elif stage == PRETRAIN:
            build(PRETRAIN, pipeline.stage_config(stage))
        else:
            agent_of(pipeline, stage)


def tokenizer_name(tokenizer: Tokenizer) -> str:
    """The hash of a vocabulary, in hexadecimal digits."""
    return tokenizer.hash.tobytes().hex()


def write_params(folder: Path, params: NetworkParams, algorithm: str, config: Any, update: int) -> str:
    """Writes the parameters of a run's last state as the output of its stage; returns their hash."""
    metadata = ParametersMetadata(
        algorithm=algorithm,
        task_id=config.environment.task_id,
        checkpoint="latest",
        update=update,
        seed=config.architecture.seed,
        config=config_to_dict(config),
        evaluation={},
        stoix_like=installed_version("stoix_like") or "",
    )
    return tree_hash(parameters.write(folder / PARAMETERS, params, metadata))


def read_params(files: StageFiles, stage: str, one: StageAgent) -> NetworkParams:
    """The parameters that a stage has made.

    Raises CheckpointError if they are damaged, do not fit the agent, speak other tokens, or are not those that the
    manifest names.
    """
    manifest, path = files.done(stage), files.folder(stage) / PARAMETERS
    if manifest.facts.get(TOKENIZER) != tokenizer_name(one.tokenizer):
        raise CheckpointError(f"{path} speaks the tokens of another vocabulary", "use the version that made it")
    shapes = jax.eval_shape(one.agent.model.init, jax.random.key(0))
    params: NetworkParams = parameters.read_arrays(path, shapes, of_this_run=True)
    if (found := tree_hash(jax.device_get(params))) != manifest.outputs[PARAMETERS]:
        what = f"{path} has the hash {found[:12]}, and its manifest names {manifest.outputs[PARAMETERS][:12]}"
        raise CheckpointError(what, f"put it back, or remove {path.parent} to do the stage again")
    return params
