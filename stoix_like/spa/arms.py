"""The arms that are compared: which stages each has, and which leaves it sets.

Source: SPA (arXiv 2510.15047), section 4: SPA, vanilla RL, state estimation, and its ablations of the loss and of the
states. `plain_ppo` is ours: what PPO without language reaches on the same levels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.sections.spa import SPAConfig

PRETRAIN, GENERATE, SFT, PPO, EVALUATE = "pretrain", "generate", "sft", "ppo", "evaluate"
STAGE_NAMES = (PRETRAIN, GENERATE, SFT, PPO, EVALUATE)
PLAIN = "plain_ppo"
_ALIASES = {"baseline": "vanilla"}
_FINE_TUNED = STAGE_NAMES
_NOT_FINE_TUNED = (PRETRAIN, PPO, EVALUATE)
_STAGES = {"vanilla": _NOT_FINE_TUNED, "state": _NOT_FINE_TUNED, PLAIN: (PPO, EVALUATE)}


class Arm(NamedTuple):
    """An arm of a configuration.

    Attributes:
        name: without aliases.
        stages: in their order.
        config: with the leaves that the arm sets. The stage `pretrain`, where all arms begin, does not read it.
    """

    name: str
    stages: tuple[str, ...]
    config: SPAConfig


def arm_of(config: SPAConfig) -> Arm:
    """The arm that a configuration names."""
    name = _ALIASES.get(config.pipeline.arm, config.pipeline.arm)
    stages, section = _STAGES.get(name, _FINE_TUNED), config.pipeline
    leaves: dict[str, Any] = {}
    if SFT not in stages:
        rate = config.ppo.ppo_lr if section.baseline_lr is None else section.baseline_lr
        leaves |= {"ppo_mode": section.baseline_mode, "ppo_lr": rate}
    if name == "vanilla":
        leaves["rendering"] = section.vanilla_rendering
    if name == "masked":
        leaves["sft_loss_mask"] = "non_state"
    if name == "belief":
        leaves["generate_states"] = "self_belief"
    return Arm(name, stages, replace_leaves(config, leaves))
