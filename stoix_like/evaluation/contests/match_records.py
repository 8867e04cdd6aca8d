"""Matches as ratings take them, and what matches from the same openings have in common: an opening that is decided
gives half of the points in every match of a player at once, so that the scores of its matches err together. NumPy in,
NumPy out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stoix_like.evaluation import statistics


class MatchRecord(NamedTuple):
    """Games of two players.

    Attributes:
        first: a name.
        second: the other's.
        score: points of `first`, from 0 to `games`; a draw is half a point.
        games: how many; 0 is allowed.
        variance_share: the variance of its pairs' mean scores over that of independent games without draws at the same
            score. It widens intervals and moves no rating; 1, the share where nothing is known, is on the safe side.
        by_opening: points of `first` from each opening, in the order of the openings; empty where they are not known.
            Records of as many openings are taken to be from the same ones: intervals then know that what an opening
            decides it decides in every match (`shared_spread`).
    """

    first: str
    second: str
    score: float
    games: float
    variance_share: float = 1.0
    by_opening: tuple[float, ...] = ()


def match_record(first: str, second: str, scores: np.ndarray) -> MatchRecord:
    """The games of a match [M, P], from M openings, each from P seats, as ratings take them."""
    scores = np.asarray(scores, np.float64)
    share = variance_share(scores.mean(axis=1), scores.shape[1])
    points = tuple(scores.sum(axis=1).tolist())
    return MatchRecord(first, second, float(scores.sum()), float(scores.size), share, points)


def variance_share(groups: np.ndarray, num_seats: int) -> float:
    """The variance of mean scores of groups [M] over that of as many independent games without draws at that score, one
    virtual group added: what `MatchRecord` takes. Draws and openings that favour a side make it small."""
    centre, variance = statistics.bounded_moments(groups, possible_means(num_seats))
    return variance * num_seats / (centre * (1.0 - centre))


def possible_means(num_seats: int) -> np.ndarray:
    """[2P + 1], the mean scores that a group can have where a draw is the only result between."""
    return np.linspace(0.0, 1.0, 2 * num_seats + 1)


def excess_covariance(points: Sequence[Sequence[float]], variance: np.ndarray) -> np.ndarray:
    """[R, R]: the covariance of the total scores of R matches, less what matches that shared nothing would have.

    Added to diag(variance) it is a covariance matrix: positive semidefinite.

    Args:
        points: of each match's first player, by opening; empty where they are not known. Matches of as many openings
            are taken to have been played from the same ones.
        variance: [R], of each match alone.
    """
    excess = np.zeros((len(points), len(points)))
    for number in {len(each) for each in points if len(each) > 1}:
        rows = [index for index, each in enumerate(points) if len(each) == number]
        found = np.array([points[index] for index in rows], float)  # [r, M]
        centred = found - found.mean(axis=1, keepdims=True)
        together = centred @ centred.T * number / (number - 1)
        alone = np.diag_indices(len(rows))
        together[alone] = np.maximum(together[alone] - variance[rows], 0.0)
        excess[np.ix_(rows, rows)] = together
    return excess


def shared_spread(records: Sequence[MatchRecord], pairs: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """[n, n]: what shared openings add to the variance of the gradient of the log-likelihood.

    Args:
        records: R matches.
        pairs: [R, 2], the indices of their players.
        strength: [n] of the players, in logits.
    """
    first, second = pairs.T
    chance = 1.0 / (1.0 + np.exp(strength[second] - strength[first]))
    games, share = np.array([(record.games, record.variance_share) for record in records], float).reshape(-1, 2).T
    excess = excess_covariance([record.by_opening for record in records], games * share * chance * (1.0 - chance))
    directions = np.eye(len(strength))[first] - np.eye(len(strength))[second]  # [R, n]
    spread: np.ndarray = directions.T @ excess @ directions
    return spread
