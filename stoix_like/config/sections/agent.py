"""The sections of agents that write: the agent, its decoder, PPO over tokens, pretraining. Standard library alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stoix_like.config.sections.leaves import LEARNING, MACHINE, PATH, SCORING, SHAPE, TASK, leaf


@dataclass(frozen=True)
class AgentSectionConfig:
    """What the agent sees and may do, and in how many tokens."""

    rendering: Literal["grid", "coordinates", "both", "positions", "grid_positions"] = leaf(
        "both", "how states are written", SHAPE
    )
    mode: Literal["base", "worldmodel"] = leaf(
        "base", "what answers consist of; worldmodel = with the state and a prediction of the next one", SHAPE
    )
    order: Literal["obs_pred_answer", "obs_answer_pred", "answer_obs_pred"] = leaf(
        "obs_pred_answer", "of the parts of answers in the mode worldmodel: state, prediction, actions", SHAPE
    )
    parser: Literal["strict", "lenient"] = leaf(
        "strict", "strict = thoughts, then an answer; lenient = the first closed answer", SHAPE | TASK
    )
    context: Literal["single_turn", "full"] = leaf(
        "single_turn", "what a turn attends to: the prompt and itself, or all turns before as well", SHAPE
    )
    num_turns: int = leaf(5, "most turns of an episode", SHAPE | TASK, low=1, high=99)
    actions_per_turn: int = leaf(5, "most actions of a turn; further ones are ignored", SHAPE | TASK, low=1, high=99)
    answer_length: int | None = leaf(
        None, "most tokens of an answer; null = those of the longest answer without thoughts", SHAPE, low=1
    )
    state_length: int | None = leaf(None, "slots of a turn's text; null = as many as it can need", SHAPE, low=1)
    group_size: int = leaf(8, "episodes on one level; it divides num_envs", SHAPE, low=1)
    shared_env_noise: bool = leaf(True, "the episodes of a group have the same chances in the world", LEARNING)
    temperature: float = leaf(1.0, "of the sampling of tokens", LEARNING | TASK, above=0.0)
    format_penalty: float = leaf(-0.1, "added to the reward of a turn with a malformed answer", LEARNING, high=0.0)
    num_eval_samples: int = leaf(8, "episodes on each level of an evaluation", SCORING, low=1)
    num_shown_episodes: int = leaf(
        4, "episodes that each evaluation writes into samples/, always on the same levels; 0 = none", MACHINE, low=0
    )


@dataclass(frozen=True)
class DecoderSectionConfig:
    """What a decoder has beside width, layers and heads, which are leaves of `architecture`."""

    num_kv_heads: int | None = leaf(None, "heads of keys and values; null = one for each of queries", SHAPE, low=1)
    head_dim: int | None = leaf(None, "size of a head, even; null = hidden_dim / num_heads", SHAPE, low=2)
    ffn_dim: int | None = leaf(None, "width between the two steps of a layer; null = 8/3 of hidden_dim", SHAPE, low=1)
    rope_theta: float = leaf(10_000.0, "base of the rotary positions' wavelengths, in tokens", SHAPE, above=1.0)
    qkv_bias: bool = leaf(False, "queries, keys and values have a bias, as in Qwen2", SHAPE)
    qk_norm: bool = leaf(False, "queries and keys are normalised, as in Qwen3", SHAPE)
    tie_embeddings: bool = leaf(True, "the output layer is the embedding", SHAPE)
    remat: bool = leaf(False, "compute layers again for gradients: less memory, more time", SHAPE)
    scan_layers: bool = leaf(False, "compile one layer for all: faster to compile, slower to run if few", SHAPE)


@dataclass(frozen=True)
class TokenPPOSectionConfig:
    """PPO over tokens."""

    critic: Literal["separate", "shared", "stopped"] = leaf(
        "stopped", "values from a decoder of their own, from the policy's, or from it without a gradient into it", SHAPE
    )
    clip_eps_high: float = leaf(
        0.28, "clip of the probability ratio above 1; clip_eps is that below", LEARNING, above=0.0
    )
    entropy_of: Literal["all", "answer"] = leaf(
        "all",
        "the tokens that earn the entropy bonus: all of the agent's, or those between the tags of its answer",
        SHAPE,
    )
    dual_clip: float | None = leaf(
        None, "largest probability ratio where the advantage is negative; null = any", LEARNING, above=1.0
    )
    num_microbatches: int = leaf(1, "parts of a minibatch, whose gradients are added up", SHAPE, low=1)
    advantage_estimator: Literal["gae", "bilevel_gae", "grpo", "rloo"] = leaf(
        "gae", "by a critic over tokens, or over turns and tokens; by groups, with or without their deviation", SHAPE
    )
    turn_gamma: float = leaf(0.95, "discount per turn of bilevel_gae", LEARNING, low=0.0, high=1.0)
    kl_coef: float = leaf(
        0.0,
        "divergence per token from the parameters that the run began with; above 0 it needs load_path",
        SHAPE,
        low=0.0,
    )
    rollout_filter_ratio: float = leaf(
        1.0,
        "groups that are learned from, of all: those with the largest deviations of returns",
        SHAPE,
        above=0.0,
        high=1.0,
    )
    loss_mask: Literal["response", "all"] = leaf(
        "response",
        "the tokens with a loss: those that the agent chose, or also those of the world, as SPA's release",
        SHAPE,
    )
    old_log_probs: Literal["sampled", "recomputed"] = leaf(
        "sampled", "log-probabilities of the policy that acted: as it sampled, or read again before learning", SHAPE
    )
    critic_warmup_updates: int = leaf(0, "updates in which the critic alone learns", LEARNING, low=0)


@dataclass(frozen=True)
class FineTuneSectionConfig:
    """Fine-tuning on rows of written turns."""

    data_path: str | None = leaf(
        None, "folder of wm_train.npz and wm_val.npz, the rows that are learned from", MACHINE | PATH
    )
    loss_mask: Literal["assistant", "state_only", "non_state", "answer_only"] = leaf(
        "assistant",
        "tokens of answers with a loss: all (SPA's paper), states, all but states (its release), actions",
        SHAPE,
    )
    batch_size: int = leaf(16, "rows of a gradient step", SHAPE, low=1)
    num_microbatches: int = leaf(1, "parts of a batch, whose gradients are added up", SHAPE, low=1)
    max_length: int | None = leaf(None, "most tokens of a row after the prompt; null = any", SHAPE, low=1)
    truncation: Literal["left", "right", "drop"] = leaf(
        "left", "of longer rows the first tokens are left out, the last, or the rows", SHAPE
    )
    schedule: Literal["cosine", "constant"] = leaf("cosine", "of the rate, after it has risen", SHAPE)
    warmup_share: float = leaf(0.1, "gradient steps in which the rate rises, of all", LEARNING, low=0.0, high=1.0)
    weight_decay: float = leaf(0.01, "share that kernels lose per gradient step, times the rate", LEARNING, low=0.0)
    adam_b1: float = leaf(0.9, "decay of AdamW's first moments", LEARNING, low=0.0, high=1.0)
    adam_b2: float = leaf(0.95, "decay of AdamW's second moments", LEARNING, low=0.0, high=1.0)


@dataclass(frozen=True)
class PretrainSectionConfig:
    """Pretraining on the format alone."""

    all_modes: bool = leaf(True, "both modes in equal parts; false = the agent's", SHAPE)
    all_renderings: bool = leaf(True, "grid, coordinates and both in equal parts; false = the agent's", SHAPE)
    second_rendering: Literal["grid", "coordinates", "both", "positions", "grid_positions"] | None = leaf(
        None, "one more, in the agent's mode", SHAPE
    )
    gradient_steps: int = leaf(
        1, "of an update, each on a share of its rows; after several PPO learned worse", SHAPE, low=1
    )
    weight_decay: float = leaf(0.01, "share that kernels lose per gradient step, times the rate", LEARNING, low=0.0)
    warmup_updates: int = leaf(10, "updates in which the rate rises", LEARNING, low=0)
