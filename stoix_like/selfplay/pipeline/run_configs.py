"""The configurations of the run that trains, and of what is published of it."""

from __future__ import annotations

import dataclasses

from stoix_like.config.checks.access import get_leaf, replace_leaves
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.selfplay.files.folders import Layout

#: Leaves that shape a State of AlphaZero, and of self-play alone: they may change while the run in train/ goes on.
ONLY_SELF_PLAY = ("num_simulations", "quick_simulations", "max_considered_actions")


def run_config(config: SelfPlayConfig, layout: Layout, num_updates: int) -> AlphaZeroConfig:
    """The configuration of the run that trains, in which the leaves of self-play alone have their defaults."""
    leaves = {leaf: get_leaf(AlphaZeroConfig(), leaf) for leaf in ONLY_SELF_PLAY}
    return replace_leaves(published_config(config, layout, num_updates), leaves)


def published_config(config: SelfPlayConfig, layout: Layout, num_updates: int) -> AlphaZeroConfig:
    """The configuration that candidates are published with, by whose search they play in contests."""
    sections = {field.name: getattr(config, field.name) for field in dataclasses.fields(AlphaZeroConfig)}
    leaves = {
        "self_play": False,
        "num_updates": num_updates,
        "total_timesteps": None,
        "num_eval_episodes": 0,
        "save_replay": False,
        "keep_last_n": None,
        "use_ocdbt": False,
        "save_dir": str(layout.root),
        "run_name": layout.train_run.name,
    }
    return replace_leaves(AlphaZeroConfig(**sections), leaves)
