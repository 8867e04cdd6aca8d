"""The configuration of SPA: self-play data, fine-tuning on the world's states, then PPO over tokens.

Leaves that several stages have carry the stage in their name. Imports only the standard library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stoix_like.config.sections.leaves import leaf
from stoix_like.config.sections.runs import HardwareConfig, LoggingConfig


@dataclass(frozen=True)
class PipelineSectionConfig:
    """What is compared, and where it is kept."""

    arm: Literal["spa", "vanilla", "baseline", "state", "masked", "belief", "plain_ppo"] = leaf(
        "spa",
        "spa; vanilla = baseline = PPO alone; state = the same, seeing rendering; masked = fine-tuned on all but"
        " states; belief = on the states it imagined; plain_ppo = without language",
    )
    vanilla_rendering: Literal["grid", "coordinates", "both", "positions", "grid_positions"] = leaf(
        "grid", "how the arm vanilla sees states"
    )
    baseline_mode: Literal["base", "worldmodel"] = leaf("base", "answers of the arms that are not fine-tuned")
    baseline_lr: float | None = leaf(None, "their PPO rate; null = ppo_lr", low=0.0)
    save_dir: str = leaf("runs/spa", "folder of all pipelines")
    save_interval: int = leaf(50, "updates between checkpoints of a stage that trains", low=1)


@dataclass(frozen=True)
class WorldSectionConfig:
    """The world that is played in."""

    task_id: str = leaf("FrozenLake-text-v0", "a text world; see envs.py")
    kwargs: Mapping[str, Any] = leaf({}, "its sizes, rules and bank of levels")


@dataclass(frozen=True)
class SPAAgentConfig:
    """What the agent sees and may do, in all stages."""

    rendering: Literal["grid", "coordinates", "both", "positions", "grid_positions"] = leaf(
        "coordinates", "how states are written: docs/spa.md#arms"
    )
    order: Literal["obs_pred_answer", "obs_answer_pred", "answer_obs_pred"] = leaf(
        "obs_pred_answer", "of the parts of answers in the mode worldmodel: state, prediction, actions"
    )
    parser: Literal["strict", "lenient"] = leaf("strict", "strict = thoughts, then an answer; lenient = the first one")
    context: Literal["single_turn", "full"] = leaf("single_turn", "what a turn attends to: itself, or all turns before")
    num_turns: int = leaf(5, "most turns of an episode", low=1, high=99)
    actions_per_turn: int = leaf(5, "most actions of a turn; further ones are ignored", low=1, high=99)
    answer_length: int | None = leaf(None, "most tokens of an answer; null = as many as the longest needs", low=1)
    state_length: int | None = leaf(None, "slots of a turn's text; null = as many as it can need", low=1)
    temperature: float = leaf(1.0, "of the sampling of tokens", above=0.0)
    format_penalty: float = leaf(-0.1, "added to the reward of a turn with a malformed answer", high=0.0)
    shared_env_noise: bool = leaf(True, "the episodes of a group have the same chances in the world")


@dataclass(frozen=True)
class ModelSectionConfig:
    """The decoder, and the seed of everything."""

    hidden_dim: int = leaf(96, "width", low=2)
    num_layers: int = leaf(3, "layers", low=1, high=1_000)
    num_heads: int = leaf(8, "heads of queries", low=1)
    num_kv_heads: int | None = leaf(None, "heads of keys and values; null = one for each of queries", low=1)
    head_dim: int | None = leaf(None, "size of a head, even; null = hidden_dim / num_heads", low=2)
    ffn_dim: int | None = leaf(None, "width between the two steps of a layer; null = 8/3 of hidden_dim", low=1)
    rope_theta: float = leaf(100.0, "base of the rotary positions' wavelengths, in tokens", above=1.0)
    qkv_bias: bool = leaf(False, "queries, keys and values have a bias, as in Qwen2")
    qk_norm: bool = leaf(False, "queries and keys are normalised, as in Qwen3")
    tie_embeddings: bool = leaf(True, "the output layer is the embedding")
    remat: bool = leaf(False, "compute layers again for gradients: less memory, more time")
    scan_layers: bool = leaf(False, "compile one layer for all: faster to compile, slower to run if few")
    compute_dtype: Literal["float32", "bfloat16"] = leaf("float32", "type of arithmetic; losses stay float32")
    seed: int = leaf(0, "root of all randomness", low=0, high=2**31 - 1)


@dataclass(frozen=True)
class SPAPretrainConfig:
    """The stage `pretrain`: a model that knows the format alone, where all arms begin."""

    pretrain_updates: int = leaf(240, "updates of an episode in each environment", low=1)
    pretrain_envs: int = leaf(64, "episodes per update", low=1)
    pretrain_gradient_steps: int = leaf(1, "gradient steps per update; after several PPO learned worse", low=1)
    pretrain_microbatches: int = leaf(4, "parts of the rows of a gradient step, whose gradients are added up", low=1)
    pretrain_lr: float = leaf(3e-3, "AdamW rate", low=0.0)
    pretrain_max_grad_norm: float = leaf(1.0, "largest gradient norm", above=0.0)
    pretrain_weight_decay: float = leaf(0.01, "share that kernels lose per gradient step, times the rate", low=0.0)
    pretrain_warmup_updates: int = leaf(10, "updates in which the rate rises", low=0)
    pretrain_all_modes: bool = leaf(True, "both modes in equal parts; false = that of the arms that are not fine-tuned")


@dataclass(frozen=True)
class GenerateSectionConfig:
    """The stage `generate`: episodes whose states are replaced by those that were."""

    generate_batches: int = leaf(5, "batches of episodes", low=1)
    generate_groups: int = leaf(32, "levels of a batch", low=1)
    generate_group_size: int = leaf(8, "episodes on each of them", low=1)
    generate_mode: Literal["base", "worldmodel"] = leaf("worldmodel", "what answers consist of")
    generate_policy: Literal["model", "random"] = leaf("model", "who plays: the pretrained model, or random actions")
    generate_states: Literal["replace", "self_belief", "random_state"] = leaf(
        "replace", "states that were, states that were sampled, or states of other turns"
    )
    generate_keep_untagged: bool = leaf(True, "keep rows whose answers lack an observation or a prediction")
    generate_validation_share: float = leaf(0.2, "trajectories whose rows are only validated on", above=0.0, high=0.9)


@dataclass(frozen=True)
class SFTSectionConfig:
    """The stage `sft`: supervised fine-tuning on those rows."""

    sft_epochs: int = leaf(5, "passes over the rows", low=1)
    sft_batch_size: int = leaf(16, "rows of a gradient step", low=1)
    sft_microbatches: int = leaf(1, "parts of a batch, whose gradients are added up", low=1)
    sft_lr: float = leaf(1e-3, "AdamW rate", low=0.0)
    sft_schedule: Literal["cosine", "constant"] = leaf("cosine", "of the rate, after it has risen")
    sft_warmup_share: float = leaf(0.1, "gradient steps in which the rate rises, of all", low=0.0, high=1.0)
    sft_max_grad_norm: float = leaf(1.0, "largest gradient norm", above=0.0)
    sft_weight_decay: float = leaf(0.01, "share that kernels lose per gradient step, times the rate", low=0.0)
    sft_adam_b1: float = leaf(0.9, "decay of AdamW's first moments", low=0.0, high=1.0)
    sft_adam_b2: float = leaf(0.95, "decay of AdamW's second moments", low=0.0, high=1.0)
    sft_loss_mask: Literal["assistant", "state_only", "non_state", "answer_only"] = leaf(
        "assistant", "tokens of answers with a loss: all (SPA's paper), states, all but states (its release), actions"
    )
    sft_max_length: int | None = leaf(None, "most tokens of a row after the prompt; null = any", low=1)
    sft_truncation: Literal["left", "right", "drop"] = leaf(
        "left", "of longer rows the first tokens are left out, the last, or the rows"
    )
    sft_validation_rows: int = leaf(512, "rows of validation that are scored, at most", low=1)


@dataclass(frozen=True)
class SPAPPOConfig:
    """The stage `ppo`: PPO over tokens."""

    ppo_updates: int = leaf(120, "updates of an episode in each environment", low=1)
    ppo_envs: int = leaf(128, "episodes per update", low=1)
    ppo_group_size: int = leaf(8, "episodes on one level; it divides ppo_envs", low=1)
    ppo_mode: Literal["base", "worldmodel"] = leaf("worldmodel", "answers of the arms that are fine-tuned")
    ppo_lr: float = leaf(3e-4, "Adam rate of the decoder", low=0.0)
    ppo_critic_lr: float = leaf(1e-3, "Adam rate of the critic", low=0.0)
    ppo_decay_learning_rates: bool = leaf(True, "rates fall linearly to 0 over ppo_updates")
    ppo_epochs: int = leaf(2, "passes over the tokens of an update", low=1)
    ppo_minibatches: int = leaf(4, "gradient steps per pass", low=1)
    ppo_microbatches: int = leaf(1, "parts of a minibatch, whose gradients are added up", low=1)
    ppo_gamma: float = leaf(1.0, "discount per token", low=0.0, high=1.0)
    ppo_gae_lambda: float = leaf(0.95, "lambda of generalised advantage estimation", low=0.0, high=1.0)
    ppo_clip_eps: float = leaf(0.2, "clip of the probability ratio below 1", above=0.0)
    ppo_clip_eps_high: float = leaf(0.28, "clip of the probability ratio above 1", above=0.0)
    ppo_dual_clip: float | None = leaf(
        None, "largest ratio where the advantage is negative; null = any, in SPA 3", above=1.0
    )
    ppo_value_clip_eps: float | None = leaf(None, "clip of the value update; null = unclipped", above=0.0)
    ppo_vf_coef: float = leaf(0.5, "weight of the value loss", low=0.0)
    ppo_entropy_coeff: float = leaf(0.001, "entropy bonus of a token", low=0.0)
    ppo_entropy_of: Literal["all", "answer"] = leaf("all", "the tokens that earn it: all, or those of the answer")
    ppo_max_grad_norm: float = leaf(1.0, "largest gradient norm", above=0.0)
    ppo_reward_scale: float = leaf(1.0, "factor on rewards before returns are formed", above=0.0)
    ppo_standardize_advantages: Literal["batch", "minibatch", "none"] = leaf(
        "batch", "over what advantages of a critic get mean 0 and deviation 1; those of groups are not"
    )
    ppo_critic: Literal["separate", "shared", "stopped"] = leaf(
        "stopped", "values from a decoder of their own, from the policy's, or from it without a gradient into it"
    )
    ppo_critic_warmup_updates: int = leaf(0, "updates in which the critic alone learns", low=0)
    adv_estimator: Literal["gae", "bilevel_gae", "grpo", "rloo"] = leaf(
        "gae", "by a critic over tokens, or over turns and tokens; by groups, with or without their deviation"
    )
    ppo_turn_gamma: float = leaf(0.95, "discount per turn of bilevel_gae", low=0.0, high=1.0)
    ppo_kl_coef: float = leaf(0.0, "divergence per token from the model that the stage began with", low=0.0)
    rollout_filter_ratio: float = leaf(
        1.0, "groups that are learned from, of all: those with the largest deviations of returns", above=0.0, high=1.0
    )
    ppo_loss_mask: Literal["response", "all"] = leaf("response", "tokens with a loss: chosen ones, or the world's too")
    ppo_old_log_probs: Literal["sampled", "recomputed"] = leaf(
        "sampled", "log-probabilities of the policy that acted: as it sampled, or read again before learning"
    )


@dataclass(frozen=True)
class SPAEvaluateConfig:
    """The stage `evaluate`, and evaluations while a stage trains."""

    eval_interval: int = leaf(10, "updates of PPO between evaluations; 0 = only at the end", low=0)
    eval_levels: int = leaf(64, "held-out levels of an evaluation during training; 0 = no evaluations", low=0)
    final_eval_levels: int = leaf(512, "held-out levels of the stage evaluate", low=1)
    eval_samples: int = leaf(8, "episodes on each level, of which Pass@k takes the best of k", low=1)
    eval_forced_prediction: bool = leaf(True, "play also with the prediction forced to a state that has succeeded")


@dataclass(frozen=True)
class SPAConfig:
    """The configuration of a pipeline of SPA."""

    pipeline: PipelineSectionConfig = dataclasses.field(default_factory=PipelineSectionConfig)
    world: WorldSectionConfig = dataclasses.field(default_factory=WorldSectionConfig)
    agent: SPAAgentConfig = dataclasses.field(default_factory=SPAAgentConfig)
    model: ModelSectionConfig = dataclasses.field(default_factory=ModelSectionConfig)
    pretrain: SPAPretrainConfig = dataclasses.field(default_factory=SPAPretrainConfig)
    generate: GenerateSectionConfig = dataclasses.field(default_factory=GenerateSectionConfig)
    sft: SFTSectionConfig = dataclasses.field(default_factory=SFTSectionConfig)
    ppo: SPAPPOConfig = dataclasses.field(default_factory=SPAPPOConfig)
    evaluate: SPAEvaluateConfig = dataclasses.field(default_factory=SPAEvaluateConfig)
    hardware: HardwareConfig = dataclasses.field(default_factory=HardwareConfig)
    logging: LoggingConfig = dataclasses.field(default_factory=LoggingConfig)
