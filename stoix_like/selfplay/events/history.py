"""What decisions of the past mean for the next iterations: pure functions of the manifests. Imports no JAX."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stoix_like.evaluation.contests.elo import elo_difference
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.manifests import end_of

LARGEST_BOOST, BOOST_ON_REJECTION, BOOST_DECAY = 2.0, 1.3, 0.9
BOOST_MEMORY = 50  # decisions at most that count for it; of an earlier one 0.9^50, half a percent, would be left


class IterationResult(NamedTuple):
    """What was decided on the candidate of an iteration.

    Attributes:
        iteration: its number.
        promoted: whether it became champion.
        is_rejected: whether the match said that it is no better.
        elo: its strength less the champion's, from the score of their match; None without games.
        time: when the decision was made, in seconds since 1970.
        positions: that the store had taken in.
    """

    iteration: int
    promoted: bool
    is_rejected: bool
    elo: float | None
    time: float
    positions: int


Known = dict[int, "IterationResult | None"]  # by number of an iteration; None of one that is not finished


def results(layout: Layout, last: int | None = None, known: Known | None = None) -> Iterator[IterationResult]:
    """The results of finished iterations up to `last`, the newest first; those that are `known` are not read again."""
    known = {} if known is None else known
    for number in layout.newest_first(last):
        if number not in known:
            names = ("promote", "evaluate", "sync")
            known[number] = result_of(number, {name: read_manifest(layout.stage(number, name)) for name in names})
        if (found := known[number]) is not None:
            yield found


def result_of(number: int, manifests: Mapping[str, Manifest | None]) -> IterationResult | None:
    """The result of an iteration from its manifests; None if it is not finished."""
    promoted, evaluated, synced = (manifests[name] for name in ("promote", "evaluate", "sync"))
    if promoted is None:
        return None
    facts, elo = promoted.facts, None
    if evaluated is not None and "score" in evaluated.facts:
        elo = elo_of(float(evaluated.facts["score"][0]), int(evaluated.facts["games"]))
    positions = 0 if synced is None else int(synced.facts["positions"])
    is_rejected = facts["verdict"] == "reject"
    return IterationResult(number, bool(facts["promoted"]), is_rejected, elo, end_of(promoted), positions)


def elo_of(score: float, games: int) -> float:
    """The difference in Elo of a score of so many games, half a game away from 0 and 1 at least."""
    bound = 0.5 / max(games, 1)
    return elo_difference(min(max(score, bound), 1.0 - bound))


def exploration_boost(newest_first: Iterator[IterationResult]) -> float:
    """A factor from 1 to 2 on the noise at the root and on the temperature of self-play.

    Each rejection multiplies it by 1.3; what is neither rejected nor promoted lets it fall by a tenth of what it is
    above 1; a promotion ends it.
    """
    recent = itertools.islice(newest_first, BOOST_MEMORY)
    since = list(itertools.takewhile(lambda result: not result.promoted, recent))
    boost = 1.0
    for result in reversed(since):
        boost = (
            min(boost * BOOST_ON_REJECTION, LARGEST_BOOST) if result.is_rejected else 1.0 + BOOST_DECAY * (boost - 1.0)
        )
    return boost


class WatchRule(NamedTuple):
    """What counts as a plateau, and as a regression."""

    plateau_iterations: int = 20
    plateau_elo: float = 15.0  # that champions gain over them at least
    regression_iterations: int = 5
    regression_elo: float = 50.0  # below the champion, on average

    @property
    def memory(self) -> int:
        """How many results it looks at, the one before the first of each window included."""
        return max(self.plateau_iterations, self.regression_iterations) + 1


def plateau(recent: Sequence[IterationResult], rule: WatchRule) -> float | None:
    """The gain of champions over the newest iterations, if there are enough of them and it is too small; else None."""
    window = recent[: rule.plateau_iterations]
    if len(window) < rule.plateau_iterations:
        return None
    gain = sum(max(result.elo or 0.0, 0.0) for result in window if result.promoted)
    return gain if gain < rule.plateau_elo else None


def regression(recent: Sequence[IterationResult], rule: WatchRule) -> float | None:
    """How far the newest candidates lie below the champion on average, if none was promoted and it is too far."""
    window = recent[: rule.regression_iterations]
    if len(window) < rule.regression_iterations or any(result.promoted or result.elo is None for result in window):
        return None
    drop = -sum(result.elo or 0.0 for result in window) / len(window)
    return drop if drop > rule.regression_elo else None


def begins(recent: Sequence[IterationResult], found: float | None, before: float | None, every: int) -> bool:
    """Whether what was found is told now: when it begins, and again every so many iterations while it lasts."""
    return found is not None and (before is None or recent[0].iteration % every == 0)
