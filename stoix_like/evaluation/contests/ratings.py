"""Ratings of players from all games jointly: Bradley-Terry, and Plackett-Luce where games have more players.

Both are one likelihood over choices: a choice is who of several comes first, with odds exp(strength). A game of two is
one choice; a ranking is the choice of its first, then of the first of the rest (Plackett 1975, "The Analysis of
Permutations"; Hunter 2004, "MM Algorithms for Generalized Bradley-Terry Models"). Ratings are on Elo's scale: strength
times 400 / ln 10. Ties count as the mean of the log-likelihoods of all orders that they leave open; so a draw of two is
half a win of each, and Plackett-Luce of two players is Bradley-Terry, draws included.

Players whom no chain of games connects get no rating. NumPy in, NumPy out.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stoix_like.evaluation import statistics
from stoix_like.evaluation.contests.elo import SCALE
from stoix_like.evaluation.contests.match_records import MatchRecord, match_record, shared_spread

__all__ = ["MatchRecord", "Ranking", "Rating", "RatingTable", "match_record", "rate", "rate_rankings"]

NOBODY = -1
_MOST_ITERATIONS = 200
_LONGEST_STEP = 2.0  # of strength, 347 Elo: further away the curvature says nothing


class Ranking(NamedTuple):
    """One game of several players. A name may stand more than once, as copies of a player in several seats do."""

    names: tuple[str, ...]  # [P]
    outcome: tuple[float, ...]  # [P], higher is better; equal is tied


class Rating(NamedTuple):
    """A row of the table. The bounds of an anchor are its rating; of a player who is not connected all are NaN."""

    name: str
    rating: float  # Elo
    low: float
    high: float
    games: float
    score: float  # mean, from 0 to 1; among several the share of opponents that came behind, ties half


class RatingTable(NamedTuple):
    """Rows from the highest rating down, those without one last."""

    rows: tuple[Rating, ...]
    anchors: tuple[str, ...]
    disconnected: tuple[str, ...]  # no chain of games leads from them to those that are rated


class _Choices(NamedTuple):
    """K choices among at most P players."""

    members: np.ndarray  # [K, P] int, the chosen first; NOBODY beyond the last
    weight: np.ndarray  # [K], how often it was made
    share: np.ndarray  # [K], of variance


def rate(
    records: Sequence[MatchRecord],
    anchors: Mapping[str, float] | None = None,
    *,
    prior: float = 1.0,
    mean: float = 0.0,
    confidence: float = 0.95,
) -> RatingTable:
    """Bradley-Terry ratings, the maximum a posteriori over all games, with intervals from the curvature there.

    Args:
        records: what was played; two players may stand in several.
        anchors: players whose ratings are given, Elo; at least one must be connected to whoever is to be rated.
        prior: virtual draws of every player, who is no anchor, against one of mean rating. 0 is maximum likelihood.
        mean: of all players' ratings where there are no anchors. With anchors, theirs is the prior's.
        confidence: of the intervals, in (0, 1). Without anchors they are of the distance to the mean of all players.

    Raises:
        ValueError: no games, a score outside its games, a player against itself, or no finite maximum without a prior.
    """
    for record in records:
        if not 0 <= record.score <= record.games or record.first == record.second:
            raise ValueError(f"a record must be of two players, with a score from 0 to its games: {record}")
    names = sorted({name for record in records for name in record[:2]} | set(anchors or {}))
    index = {name: i for i, name in enumerate(names)}
    pairs = [(index[r.first], index[r.second]) for r in records]
    choices = _Choices(
        np.array([*pairs, *(pair[::-1] for pair in pairs)], int).reshape(-1, 2),
        np.array([*(r.score for r in records), *(r.games - r.score for r in records)], float),
        np.array([r.variance_share for r in records] * 2, float),
    )
    points, games = np.zeros(len(names)), np.zeros(len(names))
    for record, (first, second) in zip(records, pairs, strict=True):
        points[[first, second]] += record.score, record.games - record.score
        games[[first, second]] += record.games
    spread = functools.partial(shared_spread, records, np.array(pairs, int).reshape(-1, 2))
    return _table(names, choices, points, games, anchors or {}, (prior, mean, confidence), spread)


def rate_rankings(
    rankings: Sequence[Ranking],
    anchors: Mapping[str, float] | None = None,
    *,
    prior: float = 1.0,
    mean: float = 0.0,
    confidence: float = 0.95,
) -> RatingTable:
    """Plackett-Luce ratings from games of any number of players; the arguments are those of `rate`.

    The prior is the same: virtual draws of two. Intervals take games for independent.

    Raises:
        ValueError: as `rate`, and a ranking of fewer than two players, or without an outcome for each.
    """
    names = sorted({name for ranking in rankings for name in ranking.names} | set(anchors or {}))
    index = {name: i for i, name in enumerate(names)}
    rows: list[tuple[list[int], float]] = []
    points, games = np.zeros(len(names)), np.zeros(len(names))
    for ranking in rankings:
        members, outcome = [index[name] for name in ranking.names], np.asarray(ranking.outcome, float)
        if len(members) < 2 or outcome.shape != (len(members),) or not np.isfinite(outcome).all():
            raise ValueError(f"a ranking needs two players or more and an outcome for each: {ranking}")
        rows += _choices_of(members, outcome)
        ahead = np.sign(outcome[:, None] - outcome).sum(axis=1) / (len(members) - 1)  # [P], in [-1, 1]
        np.add.at(points, members, (ahead + 1.0) / 2.0)
        np.add.at(games, members, 1.0)
    width = max((len(members) for members, _ in rows), default=2)
    padded = np.array([[*members, *[NOBODY] * (width - len(members))] for members, _ in rows], int).reshape(-1, width)
    weight = np.array([weight for _, weight in rows], float)
    choices = _Choices(padded, weight, np.ones_like(weight))
    return _table(names, choices, points, games, anchors or {}, (prior, mean, confidence))


def _choices_of(members: list[int], outcome: np.ndarray) -> list[tuple[list[int], float]]:
    """[(chosen first, then those it was chosen from; weight)] of one ranking, each order of ties with equal weight."""
    levels = [np.flatnonzero(outcome == value).tolist() for value in sorted(set(outcome.tolist()), reverse=True)]
    rows: list[tuple[list[int], float]] = []
    rest = [seat for level in levels for seat in level]
    for level in levels:
        orders = list(itertools.permutations(level))
        behind = rest[len(level) :]
        for order in orders:
            for position in range(len(order)):
                field = [members[seat] for seat in (*order[position:], *behind)]
                if len(set(field)) > 1:
                    rows.append((field, 1.0 / len(orders)))
        rest = behind
    return rows


def _table(
    names: list[str],
    choices: _Choices,
    points: np.ndarray,
    games: np.ndarray,
    anchors: Mapping[str, float],
    options: tuple[float, float, float],
    shared: Callable[[np.ndarray], np.ndarray] | None = None,
) -> RatingTable:
    """The rows of those who are connected, by the fit of their choices."""
    if games.sum() == 0:
        raise ValueError("no games, so nothing to rate")
    prior, mean, confidence = options
    quantile = statistics.normal_quantile(confidence)
    fixed = np.array([name in anchors for name in names])
    rated = _connected(choices, fixed, games)
    center = (
        float(np.mean(list(anchors.values()))) if anchors else mean
    )  # of the prior, and where Newton's method starts
    strength = np.array([*(anchors.get(name, center) for name in names), center]) / SCALE  # [n + 1], the prior's last
    free = np.flatnonzero(rated & ~fixed)
    choices = _Choices(*(column[rated[choices.members[:, 0]]] for column in choices))
    if prior == 0.0:
        _refuse_boundless(choices, fixed, free, names)
    basis = np.eye(len(names) + 1)[:, free]  # [n + 1, F]
    if not fixed.any():
        basis = basis @ np.linalg.svd(np.ones((1, len(free))))[2][1:].T  # [n + 1, F - 1], keeps the mean
    strength, covariance = _fit(_with_prior(choices, free, prior, len(names)), strength, basis, shared)
    ratings = np.where(rated, strength[:-1] * SCALE, np.nan)
    half = quantile * SCALE * np.sqrt(np.diag(covariance)[:-1])
    scores = points / np.maximum(games, 1.0)
    columns = (names, *(x.tolist() for x in (ratings, ratings - half, ratings + half, games, scores)))
    rows = [Rating(*row) for row in zip(*columns, strict=True)]
    rows.sort(key=lambda row: (np.isnan(row.rating), -row.rating, row.name))
    disconnected = tuple(name for name, is_rated in zip(names, rated, strict=True) if not is_rated)
    return RatingTable(tuple(rows), tuple(sorted(anchors)), disconnected)


def _reach(edges: np.ndarray) -> np.ndarray:
    """[n, n] bool: there is a way from one to the other."""
    reach: np.ndarray = edges | np.eye(len(edges), dtype=bool)
    for _ in range(len(edges).bit_length()):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0  # ways twice as long
    return reach


def _beats(choices: _Choices, fixed: np.ndarray) -> np.ndarray:
    """[n, n] bool: was ever chosen before the other. Anchors have ways to each other: their ratings are given."""
    edges = np.outer(fixed, fixed)
    chosen, rest = choices.members[:, :1], choices.members[:, 1:]
    real = (rest >= 0) & (choices.weight[:, None] > 0)
    edges[np.broadcast_to(chosen, rest.shape)[real], rest[real]] = True
    return edges


def _connected(choices: _Choices, fixed: np.ndarray, games: np.ndarray) -> np.ndarray:
    """[n] bool: connected with the anchors; without anchors, with the players who have most games between them."""
    edges = _beats(choices, fixed)
    reach = _reach(edges | edges.T)
    start = int(np.argmax(fixed)) if fixed.any() else int(np.argmax(reach @ games))
    return reach[start]


def _refuse_boundless(choices: _Choices, fixed: np.ndarray, free: np.ndarray, names: list[str]) -> None:
    """Raises ValueError if a group of players won or lost every game against the rest: nothing bounds its ratings."""
    reach = _reach(_beats(choices, fixed))
    start = int(np.argmax(fixed)) if fixed.any() else int(free[0])
    if odd := [names[i] for i in free if not (reach[start, i] and reach[i, start])]:
        raise ValueError(f"without a prior no rating is large enough: only won or only lost: {', '.join(odd)}")


def _with_prior(choices: _Choices, free: np.ndarray, prior: float, last: int) -> _Choices:
    """The choices, and for every free player `prior` draws against the player `last`, the mean."""
    virtual = np.full((2 * len(free), choices.members.shape[1]), NOBODY)
    mean = np.full(len(free), last)
    virtual[:, 0], virtual[:, 1] = np.append(free, mean), np.append(mean, free)
    half = np.full(len(virtual), prior / 2.0)
    return _Choices(
        np.concatenate([choices.members, virtual]),
        np.append(choices.weight, half),
        np.append(choices.share, np.ones_like(half)),
    )


def _fit(
    choices: _Choices,
    strength: np.ndarray,
    basis: np.ndarray,
    shared: Callable[[np.ndarray], np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """(strength [n], covariance [n, n]) of greatest likelihood among strength + basis @ anything, by Newton's method.

    The covariance is the inverse curvature, once more multiplied by the curvature in which every choice counts by its
    share of variance (the sandwich of Huber 1967); with shares of 1 it is the inverse curvature. What matches from the
    same openings have in common is added there.
    """
    for _ in range(_MOST_ITERATIONS):
        gradient, curvature, _ = _derivatives(choices, strength)
        step = basis @ np.linalg.solve(basis.T @ curvature @ basis, basis.T @ gradient)
        step *= min(1.0, _LONGEST_STEP / max(np.abs(step).max(initial=0.0), 1e-300))
        before = _log_likelihood(choices, strength)
        while _log_likelihood(choices, strength + step) < before - 1e-12 * abs(before):
            step = step / 2.0
        strength = strength + step
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    _, curvature, spread = _derivatives(choices, strength)
    spread = spread if shared is None else spread + shared(strength)
    bread = basis @ np.linalg.inv(basis.T @ curvature @ basis) @ basis.T
    return strength, bread @ spread @ bread


def _log_likelihood(choices: _Choices, strength: np.ndarray) -> float:
    return -float(choices.weight @ np.logaddexp.reduce(_behind(choices, strength), axis=1))


def _behind(choices: _Choices, strength: np.ndarray) -> np.ndarray:
    """[K, P]: the strength of each relative to the chosen. After a billion wins little is left of its odds below 1."""
    field = np.where(choices.members == NOBODY, -np.inf, strength[choices.members])
    return field - field[:, :1]


def _derivatives(choices: _Choices, strength: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(gradient [n], negated second derivative [n, n], the same with each choice times its share of variance)."""
    members, size = choices.members, len(strength)
    behind = _behind(choices, strength)
    odds = np.exp(behind - np.logaddexp.reduce(behind, axis=1, keepdims=True))  # [K, P], probabilities; 0 for nobody
    gradient = np.zeros(size)
    np.add.at(gradient, members[:, 0], choices.weight)
    np.add.at(gradient, members, -choices.weight[:, None] * odds)
    blocks = odds[:, :, None] * (np.eye(members.shape[1]) - odds[:, None, :])  # [K, P, P]
    both = []
    for weight in (choices.weight, choices.weight * choices.share):
        total = np.zeros((size, size))
        np.add.at(total, (members[:, :, None], members[:, None, :]), weight[:, None, None] * blocks)
        both.append(total)
    return gradient, both[0], both[1]
