"""How self-play is shared out over games: a weight from 0.5 to 2 for each. Imports no JAX.

w = clip((1 - s) w + s (1 + a d + b g), 0.5, 2), with the smoothing s, the weights a and b, how far a game's progress
lies behind the others' d, and the age of its newest games g. Progress is what its champions have gained in Elo over the
last iterations. A game on a plateau has d = -1 and is left out of the mean: one that is solved gains nothing, and
would get most. This module is the only one that makes weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from stoix_like.config.sections.master_loop import CurriculumConfig
from stoix_like.selfplay.events import history
from stoix_like.selfplay.events.history import WatchRule
from stoix_like.selfplay.files.folders import Layout

LOWEST, HIGHEST = 0.5, 2.0
LEAST_PROGRESS = 50.0  # Elo; differences in smaller progress are noise


class GameProgress(NamedTuple):
    """What a game's weight is made of."""

    gained: float  # Elo of its champions over the last iterations
    newest: float | None  # when its last iteration was decided, in seconds since 1970; None if there is none
    is_on_plateau: bool = False


def read_progress(layout: Layout, iterations: int, rule: WatchRule) -> GameProgress:
    """The progress of a game, from its manifests; the rule says what a plateau is."""
    recent = list(itertools.islice(history.results(layout), max(iterations, rule.plateau_iterations)))
    gained = sum(max(result.elo or 0.0, 0.0) for result in recent[:iterations] if result.promoted)
    is_on_plateau = history.plateau(recent, rule) is not None
    return GameProgress(gained, recent[0].time if recent else None, is_on_plateau)


def rebalanced(
    weights: Mapping[str, float], progress: Mapping[str, GameProgress], config: CurriculumConfig, now: float
) -> dict[str, float]:
    """The new weight of every game in `progress`; one that has none yet begins at 1."""
    rising = [one.gained for one in progress.values() if not one.is_on_plateau]
    mean = sum(rising) / max(len(rising), 1)
    found = {}
    for game, one in progress.items():
        behind = -1.0 if one.is_on_plateau else min(max((mean - one.gained) / max(mean, LEAST_PROGRESS), -1.0), 1.0)
        hours = config.age_hours if one.newest is None else (now - one.newest) / 3600.0
        age = min(max(hours / config.age_hours, 0.0), 1.0)
        newest = 1.0 + config.progress_weight * behind + config.age_weight * age
        smooth = (1.0 - config.weight_smoothing) * weights.get(game, 1.0) + config.weight_smoothing * newest
        found[game] = min(max(smooth, LOWEST), HIGHEST)
    return found


def next_game(used: Mapping[str, float], weights: Mapping[str, float]) -> str:
    """Whose turn it is: the game that has used the fewest seconds for its weight; the first of equals."""
    return min(used, key=lambda game: used[game] / weights.get(game, 1.0))
