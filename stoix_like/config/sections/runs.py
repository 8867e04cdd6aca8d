"""The configuration of a run: one frozen dataclass per section, and one per algorithm that holds the sections.

Imports only the standard library, so that `--help` is fast and a configuration can be read before JAX starts. Every
leaf has one name: the YAML key, the flag (in kebab-case) and the keyword of `ppo_config`. Checks are in
`config/checks/combinations.py`; `runtime/loading/config.py` reads YAML and flags.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stoix_like.config.layers import resolve
from stoix_like.config.sections.alphazero import AlphaZeroSectionConfig
from stoix_like.config.sections.leaves import (
    ENVIRONMENT,
    FIXED,
    FOLDER,
    LEARNING,
    MACHINE,
    PACE,
    PATH,
    PROCESS,
    RULES,
    SCORING,
    SEED,
    SHAPE,
    TASK,
    leaf,
)
from stoix_like.config.sections.spo import SPOSectionConfig


@dataclass(frozen=True)
class EnvironmentConfig:
    """The task and its environments."""

    task_id: str = leaf(
        "BinPack-v2", "Jumanji's name of a task, BinPack-v0, board game or text world; see envs.py", RULES
    )
    num_envs: int = leaf(64, "environments stepped in parallel", SHAPE | PACE, low=1)
    max_items: int | None = leaf(None, "BinPack only: most items per instance; null = the task's own", RULES, low=1)
    max_ems: int | None = leaf(None, "BinPack only: empty maximal spaces observed; null = the task's own", RULES, low=1)
    max_episode_steps: int | None = leaf(
        None, "steps before a truncation (bootstrapped); null = the task's own", RULES, low=1
    )
    kwargs: Mapping[str, Any] = leaf({}, "keyword arguments of the environment's constructor or generator", RULES)
    reset_pool_size: int | Literal["auto"] = leaf(
        "auto", "size of the pool of fresh levels for auto-reset", SHAPE, low=1
    )
    exact_reference: bool = leaf(
        False, "use Jumanji's own code for BinPack and Maze: the same bits, slower", LEARNING | ENVIRONMENT
    )
    opponent: str | None = leaf(
        None,
        "board games: who is played against, such as random, heuristic or mcts-128, or one for each other seat;"
        " null = heuristic",
        RULES,
    )
    opening_plies: int | None = leaf(
        None,
        "board games: plies of the openings that games against the opponent begin with; null = by game",
        RULES,
        low=0,
    )


@dataclass(frozen=True)
class TrainingCoreConfig:
    """The amount of training data and of gradient steps."""

    rollout_length: int = leaf(128, "environment steps per environment and update", SHAPE | PACE, low=1)
    num_updates: int | None = leaf(2000, "updates; each plays num_envs * rollout_length steps", LEARNING | PACE, low=1)
    total_timesteps: int | None = leaf(
        None, "environment steps per seed, instead of num_updates; a multiple of an update's", PACE, low=1, high=2**53
    )
    epochs: int = leaf(4, "PPO: passes over each rollout; SPO: times num_minibatches gradient steps", LEARNING, low=1)
    num_minibatches: int = leaf(32, "gradient steps per pass", LEARNING, low=1)
    gamma: float = leaf(0.99, "discount per step", LEARNING, low=0.0, high=1.0)
    gae_lambda: float = leaf(0.95, "lambda of generalised advantage estimation", LEARNING, low=0.0, high=1.0)
    num_seeds: int = leaf(1, "seeds trained side by side: seed, seed + 1, ...", FIXED | SEED, low=1)


@dataclass(frozen=True)
class OptimizationConfig:
    """The optimiser and the losses."""

    actor_lr: float = leaf(3e-4, "Adam rate of the policy (and of a shared torso)", LEARNING, low=0.0)
    critic_lr: float = leaf(1e-3, "Adam rate of the value function", LEARNING, low=0.0)
    max_grad_norm: float = leaf(0.5, "largest gradient norm, per network", LEARNING, above=0.0)
    clip_eps: float = leaf(0.2, "PPO: clip of the probability ratio", LEARNING, above=0.0)
    value_clip_eps: float | None = leaf(
        None, "PPO: clip of the value update, in reward units; null = unclipped", LEARNING, above=0.0
    )
    ent_coef: float = leaf(0.01, "weight of the entropy bonus", LEARNING, low=0.0)
    vf_coef: float = leaf(0.5, "weight of the value loss", LEARNING, low=0.0)
    decay_learning_rates: bool = leaf(True, "rates fall linearly to 0 over num_updates", LEARNING)
    standardize_advantages: Literal["batch", "minibatch", "none"] = leaf(
        "batch", "PPO: over what advantages get mean 0 and deviation 1 (true = batch, false = none)", LEARNING
    )
    reward_scale: float = leaf(1.0, "factor on rewards before returns are formed", LEARNING, above=0.0)
    tau: float = leaf(
        0.005,
        "share of the newest weights that SPO's target, or AlphaZero's average that plays, takes per gradient step",
        LEARNING,
        low=0.0,
        high=1.0,
    )


@dataclass(frozen=True)
class ArchitectureConfig:
    """The networks, and the seed of everything."""

    hidden_dim: int = leaf(256, "width of MLPs and of attention", SHAPE, low=1)
    num_layers: int | None = leaf(
        None,
        "hidden layers, attention or residual blocks, propagation steps; null = by task",
        SHAPE,
        low=1,
        high=1_000,
    )
    num_heads: int | None = leaf(None, "attention heads; null = by task", SHAPE, low=1)
    shared_torso: bool = leaf(False, "policy and value share one torso", SHAPE)
    compute_dtype: Literal["float32", "bfloat16"] = leaf(
        "float32", "type of torso arithmetic; losses stay float32", SHAPE
    )
    observation_adapter: Literal["dense", "binpack", "grid", "cells", "board", "lines", "action_planes"] | None = leaf(
        None, "network family; null = by task", SHAPE
    )
    seed: int = leaf(0, "root of all randomness", FIXED | SEED, low=0, high=2**31 - 1)


@dataclass(frozen=True)
class EvaluationConfig:
    """When the policy is evaluated, and on which levels."""

    eval_interval: int = leaf(20, "updates between evaluations; 0 = only at the end", SCORING, low=0)
    num_eval_envs: int = leaf(32, "environments evaluated in parallel", SCORING, low=1)
    num_eval_episodes: int = leaf(
        32, "episodes per evaluation; of a level_set, all levels are played; 0 = no evaluation", SCORING, low=0
    )
    level_set: str | None = leaf(None, "named frozen levels such as binpack-2048; null = fresh levels", SCORING | TASK)
    evaluate_sampled: bool = leaf(False, "evaluate sampled actions as well, on the same levels", SCORING)


@dataclass(frozen=True)
class HardwareConfig:
    """Devices and processes."""

    device_type: Literal["auto", "cpu", "cuda", "gpu", "tpu"] = leaf("auto", "cuda and gpu mean the same", MACHINE)
    cuda_device: int = leaf(0, "index of the GPU", MACHINE, low=0)
    num_devices: int = leaf(
        1, "devices that share the environments; several processes use all they have", MACHINE, low=1
    )
    distributed: bool = leaf(
        False, "join the processes that Slurm, Open MPI, Kubernetes or a TPU pod has started", PROCESS
    )
    coordinator_address: str | None = leaf(None, "host:port of process 0, if no cluster provides it", PROCESS)
    num_processes: int | None = leaf(None, "number of processes, with coordinator_address", PROCESS, low=1)
    process_id: int | None = leaf(None, "index of this process, with coordinator_address", PROCESS, low=0)


@dataclass(frozen=True)
class LoggingConfig:
    """Terminal output, and the sinks of metrics and traces."""

    log_level: Literal["debug", "info", "warning", "error"] = leaf("info", "least severe message shown", MACHINE)
    backend_logs_visible: bool = leaf(False, "show the messages of XLA and Abseil", MACHINE)
    otlp_endpoint: str | None = leaf(None, "OTLP/HTTP collector of traces; null = off", MACHINE)
    mlflow: bool = leaf(False, "log metrics to MLflow", MACHINE)
    mlflow_run_id: str | None = leaf(None, "existing MLflow run to log to; null = a new one", MACHINE)
    mlflow_tracking_uri: str | None = leaf(None, "MLflow server or store; null = SQLite in save_dir", MACHINE)
    tensorboard: bool = leaf(False, "write TensorBoard events into the run folder", MACHINE)
    wandb: bool = leaf(False, "log metrics to Weights & Biases, offline", MACHINE)
    progress: bool = leaf(True, "live view on a terminal; false = plain lines", MACHINE)
    log_interval: int | None = leaf(None, "updates per report; null = about every 2 seconds", MACHINE, low=1)


@dataclass(frozen=True)
class CheckpointingConfig:
    """The run folder and its checkpoints."""

    save_dir: str = leaf("runs", "folder in which run folders are created", FIXED | MACHINE | FOLDER)
    run_name: str | None = leaf(
        None, "name of the run folder; null = <algorithm>-<task>-<time>-s<seed>", FIXED | MACHINE | FOLDER
    )
    save_interval: int = leaf(100, "updates between checkpoints; 0 = only at the end", MACHINE, low=0)
    keep_last_n: int | None = leaf(None, "checkpoints kept besides the best one; null = all", MACHINE, low=1)
    load_path: str | None = leaf(
        None,
        "run (path or name), checkpoint or params.safetensors to load parameters from; null = none",
        SHAPE | MACHINE | PATH,
    )
    save_replay: bool = leaf(True, "SPO, AlphaZero: store the replay buffer in checkpoints", MACHINE)
    use_ocdbt: bool = leaf(
        True,
        "store arrays in a few files; false: a zarr folder for each, slower, but without orbax's leak of memory",
        MACHINE,
    )


@dataclass(frozen=True)
class RunConfig:
    """The sections that the configurations of all algorithms share."""

    environment: EnvironmentConfig = dataclasses.field(default_factory=EnvironmentConfig)
    training_core: TrainingCoreConfig = dataclasses.field(default_factory=TrainingCoreConfig)
    optimization: OptimizationConfig = dataclasses.field(default_factory=OptimizationConfig)
    architecture: ArchitectureConfig = dataclasses.field(default_factory=ArchitectureConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    hardware: HardwareConfig = dataclasses.field(default_factory=HardwareConfig)
    logging: LoggingConfig = dataclasses.field(default_factory=LoggingConfig)
    checkpointing: CheckpointingConfig = dataclasses.field(default_factory=CheckpointingConfig)


@dataclass(frozen=True)
class PPOConfig(RunConfig):
    """The configuration of a PPO run."""


@dataclass(frozen=True)
class SPOConfig(RunConfig):
    """The configuration of an SPO run."""

    spo: SPOSectionConfig = dataclasses.field(default_factory=SPOSectionConfig)


@dataclass(frozen=True)
class AlphaZeroConfig(RunConfig):
    """The configuration of an AlphaZero run: games side by side, and a network whose policy and value share a torso."""

    environment: EnvironmentConfig = dataclasses.field(
        default_factory=lambda: EnvironmentConfig(task_id="connect_four", num_envs=256)
    )
    training_core: TrainingCoreConfig = dataclasses.field(
        default_factory=lambda: TrainingCoreConfig(rollout_length=32, num_updates=200)
    )
    architecture: ArchitectureConfig = dataclasses.field(default_factory=lambda: ArchitectureConfig(shared_torso=True))
    alphazero: AlphaZeroSectionConfig = dataclasses.field(default_factory=AlphaZeroSectionConfig)


def ppo_config(**leaves: Any) -> PPOConfig:
    """A checked PPO configuration from leaves by name: `ppo_config(num_envs=64, rollout_length=16)`.

    Raises:
        ConfigError: with all unknown leaves, wrong types, values out of range and invalid combinations.
    """
    return resolve(PPOConfig(), leaves)


def spo_config(**leaves: Any) -> SPOConfig:
    """A checked SPO configuration from leaves by name, as `ppo_config`: `spo_config(num_envs=64, num_particles=16)`."""
    return resolve(SPOConfig(), leaves)


def alphazero_config(**leaves: Any) -> AlphaZeroConfig:
    """A checked AlphaZero configuration from leaves by name, as `ppo_config`: `alphazero_config(num_envs=128)`."""
    return resolve(AlphaZeroConfig(), leaves)
