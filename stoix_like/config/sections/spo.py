"""The section `spo`: search, replay and duals. Imports only the standard library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stoix_like.config.sections.leaves import LEARNING, SHAPE, leaf


@dataclass(frozen=True)
class SPOSectionConfig:
    """SPO's search, replay and duals. PPO checks the keys of this section and ignores the values."""

    num_particles: int = leaf(16, "particles per search", SHAPE, low=1)
    search_depth: int | Literal["full"] = leaf(
        4, "model steps per particle; full = to the end of the episode", SHAPE, low=1
    )
    root: Literal["iid", "gumbel_topk"] = leaf(
        "iid", "how first actions are drawn: independently, or without replacement (distinct ones)", SHAPE
    )
    continuation: Literal["sampled", "greedy"] = leaf("sampled", "how particles act after their first action", LEARNING)
    replay_buffer_size: int = leaf(65_536, "environment steps kept", SHAPE, low=1)
    sample_sequence_length: int = leaf(32, "steps learned from per replayed sequence", LEARNING, low=1)
    sample_period: int = leaf(1, "steps between the starts of sequences", LEARNING, low=1)
    batch_size: int = leaf(64, "sequences per gradient step", SHAPE, low=1)
    dual_lr: float = leaf(1e-3, "Adam rate of the duals' logarithms; does not decay", LEARNING, low=0.0)
    epsilon: float = leaf(0.5, "KL budget of the search target, nats", LEARNING, above=0.0)
    epsilon_policy: float = leaf(1e-3, "KL budget of the policy step, nats", LEARNING, above=0.0)
    kl_constraint: Literal["trajectory", "root"] = leaf(
        "trajectory",
        "what epsilon limits: the KL of the particles' weights, or of their sums per first action",
        LEARNING,
    )
    init_temperature: float = leaf(0.1, "first temperature, reward units", SHAPE, above=0.0)
    init_alpha: float = leaf(0.5, "first weight of the policy KL", SHAPE, above=0.0)
    search_gamma: float | None = leaf(None, "discount inside the search; null = gamma", LEARNING, low=0.0, high=1.0)
    search_gae_lambda: float | None = leaf(
        1.0, "lambda inside the search; null = gae_lambda", LEARNING, low=0.0, high=1.0
    )
    root_exploration_dirichlet_alpha: float = leaf(1.0, "concentration of root noise", LEARNING, above=0.0)
    root_exploration_dirichlet_fraction: float = leaf(0.0, "share of root noise", LEARNING, low=0.0, high=1.0)
    root_noise_correction: bool = leaf(False, "root iid: weigh the noise out again; gumbel_topk always does", SHAPE)
    resampling: Literal["period", "ess", "none"] = leaf(
        "period", "what triggers resampling; never at the last depth", SHAPE
    )
    resampling_period: int = leaf(4, "depths between resamplings", SHAPE, low=1)
    resampling_ess_threshold: float = leaf(
        0.5, "share of effective particles that triggers", LEARNING, low=0.0, high=1.0
    )
    resampler: Literal["systematic", "multinomial"] = leaf("systematic", "how ancestors are drawn", LEARNING)
    temperature_mode: Literal["dual", "solve", "fixed", "std"] = leaf(
        "dual", "how the temperature is set: learned, solved for epsilon, fixed, or each search's deviation", LEARNING
    )
    fixed_temperature: float = leaf(0.5, "temperature of mode fixed, reward units", LEARNING, above=0.0)
    temperature_floor: float = leaf(
        0.01, "dual and solve: least temperature, as a share of the advantages' deviation", LEARNING, above=0.0
    )
    rekey_particles: bool | Literal["auto"] = leaf(
        "auto", "give particles their own randomness; auto = if stochastic", LEARNING
    )
