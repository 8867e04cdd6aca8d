"""The checks of a self-play pipeline's configuration. Imports only the standard library."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stoix_like.config.checks.alphazero import anchor_names, engine_name, engine_problems

NETWORK_ENGINE = "gumbel-mcts"  # self-play by the network's search

#: Leaves of a run that a pipeline sets itself.
SET_BY_PIPELINE = {
    "num_updates": "--selfplay-games and --training-epochs decide how much is trained",
    "total_timesteps": "--selfplay-games and --training-epochs decide how much is trained",
    "num_seeds": "a pipeline has one seed: start another one in another --save-dir",
    "self_play": "the stage of self-play plays, and that of training learns",
    "run_name": "the run of a pipeline is the folder train/ of its game",
    "keep_last_n": "a pipeline keeps the checkpoint of its latest candidate",
    "use_ocdbt": "a pipeline always writes zarr folders, which leak no memory",
    "load_path": "a pipeline begins with random parameters, or goes on",
}


def owned_problems(where: str, leaves: Collection[str], owned: Mapping[str, str]) -> list[str]:
    """One line for each leaf that a loop sets itself, with what sets it.

    Args:
        where: the leaves are given, such as `loop.game_leaves`.
        leaves: that are given.
        owned: {leaf: what sets it} of the loop, beside those of a pipeline.
    """
    reasons = SET_BY_PIPELINE | {leaf: f"{owner} sets it" for leaf, owner in owned.items()}
    return [f"{where}: {leaf}: {reasons[leaf]}" for leaf in leaves if leaf in reasons]


def selfplay_problems(config: Any) -> list[str]:
    """One line for each reason why a pipeline cannot work with these values."""
    section, promotion = config.selfplay, config.promotion
    problems = engine_problems("promotion.match_anchors", anchor_names(promotion.match_anchors))
    if section.engine != NETWORK_ENGINE and not engine_name(section.engine).startswith("mcts-"):
        what = "a game without a search teaches no policy" if section.engine in ("random", "heuristic") else "unknown"
        problems.append(f"selfplay.engine: {section.engine!r}: {what}; use gumbel-mcts, or mcts-N such as mcts-64")
    elif section.engine != NETWORK_ENGINE:
        problems += engine_problems("selfplay.engine", [section.engine])
    if promotion.promotion_rule == "sprt" and promotion.promotion_elo_1 <= promotion.promotion_elo_0:
        problems.append(
            f"promotion.promotion_elo_1: {promotion.promotion_elo_1:g} is not above promotion_elo_0 ="
            f" {promotion.promotion_elo_0:g}; raise it"
        )
    if promotion.promotion_alpha + promotion.promotion_beta >= 1.0:
        problems.append(
            "promotion.promotion_alpha and promotion_beta: their sum must be less than 1; lower one of them"
        )
    if config.training_core.num_seeds != 1:
        problems.append(f"training_core.num_seeds: {SET_BY_PIPELINE['num_seeds']}")
    return problems


def sync_folders(text: str | None) -> Sequence[str]:
    """The folders of the leaf `sync_from`."""
    return [folder.strip() for folder in (text or "").split(",") if folder.strip()]
