"""Tables over the configurations of all algorithms: roles of leaves, and names that are read as others."""

from __future__ import annotations

from stoix_like.config.sections.agent import FineTuneSectionConfig, PretrainSectionConfig, TokenPPOSectionConfig
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, PretrainConfig
from stoix_like.config.sections.alphazero import AlphaZeroSectionConfig
from stoix_like.config.sections.roles import leaf_roles
from stoix_like.config.sections.runs import AlphaZeroConfig, PPOConfig, SPOConfig
from stoix_like.config.sections.spo import SPOSectionConfig

#: {leaf: its roles} of all algorithms.
LEAF_ROLES = {
    name: roles
    for config_type in (PPOConfig, SPOConfig, AlphaZeroConfig, AgentConfig, PretrainConfig, FineTuneConfig)
    for name, roles in leaf_roles(config_type).items()
}
SECTION_ALIASES = {"ppo_core": "training_core"}
#: Leaves of rust_rl that mean something else here: {leaf: (ours, what ours means)}.
RENAMED_LEAVES = {
    "init_log_temperature": ("init_temperature", "the temperature itself, in reward units"),
    "init_log_alpha": ("init_alpha", "the weight itself"),
}
#: Leaves of rust_rl that are read as one of ours: {leaf of a file: (our leaf, {value of the file: our value})}.
ACCEPTED_LEAVES: dict[str, tuple[str, dict[bool, str]]] = {
    "adaptive_temperature": ("temperature_mode", {True: "dual", False: "fixed"})
}
#: Sections of other algorithms, whose keys a run checks without reading the values.
CHECKED_ONLY_SECTIONS: dict[type, dict[str, type]] = {
    PPOConfig: {"spo": SPOSectionConfig, "alphazero": AlphaZeroSectionConfig},
    SPOConfig: {"alphazero": AlphaZeroSectionConfig},
    AlphaZeroConfig: {"spo": SPOSectionConfig},
    AgentConfig: {"pretrain": PretrainSectionConfig, "fine_tune": FineTuneSectionConfig},
    PretrainConfig: {"token_ppo": TokenPPOSectionConfig, "fine_tune": FineTuneSectionConfig},
    FineTuneConfig: {"token_ppo": TokenPPOSectionConfig, "pretrain": PretrainSectionConfig},
}
