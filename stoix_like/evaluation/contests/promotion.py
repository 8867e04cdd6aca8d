"""Whether a candidate replaces the champion: one pure decision from the evidence of their match and a rule.

Every condition is joined by *and*, and what is missing counts as failed: no games, an error, evidence of another
candidate, champion, specification or list of openings never promotes. The unit of the evidence is a group, the games of
one opening from every seat.

The default rule is a sequential probability ratio test between two differences in Elo. Its log-likelihood ratio is the
generalised one for independent scores of unknown distribution, in its normal approximation: of n groups with mean m and
variance v, for the expected scores s0 and s1, n (s1 - s0) (2 m - s0 - s1) / (2 v) (Van den Bergh, "The generalized
sequential probability ratio test", on which fishtest of Stockfish stands; the bounds are Wald's 1945). One virtual
group that is spread evenly over its possible scores keeps v positive where all games are drawn. NumPy in, NumPy out.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from stoix_like.evaluation import statistics
from stoix_like.evaluation.contests import matches
from stoix_like.evaluation.contests.elo import expected_score
from stoix_like.evaluation.statistics import Interval

RuleName = Literal["sprt", "non_inferior", "fixed"]


class PromotionRule(NamedTuple):
    """When evidence is enough.

    Attributes:
        name: "sprt" tests elo_0 against elo_1 > elo_0 and promotes where elo_1 is accepted. "non_inferior" is the same
            test of elo_0 = -elo_1 against 0, for solved games, where no candidate can be better. "fixed" plays
            `most_groups` and promotes where the lower bound of the score's 95 % interval is above one half.
        elo_0: the difference at which promotions are errors.
        elo_1: the difference at which rejections are errors.
        alpha: the rate of the first error that the bounds are made for. Looks between which several groups are played,
            and openings that bring scores closer to one half, change the true rates: `bench.py --suite promotion`
            simulates them.
        beta: that of the second one.
        most_groups: of openings. A sequential test that has not decided by then is inconclusive.
        groups_per_look: the evidence is looked at after so many groups each.
    """

    name: RuleName = "sprt"
    elo_0: float = 0.0
    elo_1: float = 50.0
    alpha: float = 0.05
    beta: float = 0.05
    most_groups: int = 200
    groups_per_look: int = 20

    @property
    def hypotheses(self) -> tuple[float, float]:
        """The two differences in Elo that are tested."""
        return (-self.elo_1, 0.0) if self.name == "non_inferior" else (self.elo_0, self.elo_1)

    @property
    def bounds(self) -> tuple[float, float]:
        """The log-likelihood ratios at which the lower and the higher difference is accepted."""
        return math.log(self.beta / (1.0 - self.alpha)), math.log((1.0 - self.beta) / self.alpha)


class MatchSubject(NamedTuple):
    """What a match is evidence of: hashes of all that it depends on."""

    candidate: str
    champion: str
    specification: str  # searches and rules of the evaluation
    openings: str


class Evidence(NamedTuple):
    """The games of a candidate against a champion, in the order in which they were played.

    Attributes:
        subject: who played, and how.
        scores: [n, P] of the candidate, a row per opening, a column per seat: 1 a win, 0.5 a draw, 0 a loss.
        openings: [n] which opening of the list each row was played from.
        num_unfinished: games that were cut short.
        error: why the match ended early; None if it did not.
    """

    subject: MatchSubject
    scores: np.ndarray
    openings: np.ndarray
    num_unfinished: int = 0
    error: str | None = None


class Look(NamedTuple):
    """What the groups so far say."""

    num_groups: int
    log_likelihood_ratio: float
    verdict: Literal["higher", "lower"] | None  # the difference that is accepted; None: go on


class Decision(NamedTuple):
    """The outcome of a match, and why.

    Attributes:
        promotes: whether the candidate becomes the champion.
        verdict: "promote", "reject", "inconclusive", or "invalid" where the evidence cannot be used.
        reasons: sentences, one for each condition that failed, or the one that decided.
        num_groups: that were counted; later ones are not, since the test had decided.
        score: of the candidate over these groups, with its 95 % interval; NaN without any.
        log_likelihood_ratio: of the last look; NaN of the rule "fixed" and of invalid evidence.
    """

    promotes: bool
    verdict: Literal["promote", "reject", "inconclusive", "invalid"]
    reasons: tuple[str, ...]
    num_groups: int
    score: Interval
    log_likelihood_ratio: float


def log_likelihood_ratio(groups: np.ndarray, num_seats: int, elo_0: float, elo_1: float) -> float:
    """How much more probable the mean scores of groups [n] are at a difference of elo_1 than of elo_0. 0 of none."""
    if len(groups) == 0:
        return 0.0
    mean, variance = statistics.bounded_moments(groups, np.linspace(0.0, 1.0, 2 * num_seats + 1))
    low, high = expected_score(elo_0), expected_score(elo_1)
    return len(groups) * (high - low) * (2.0 * mean - low - high) / (2.0 * variance)


def looks(scores: np.ndarray, rule: PromotionRule) -> list[Look]:
    """The looks of a sequential rule at scores [n, P], up to the one that decides or the last complete one."""
    groups = np.asarray(scores, np.float64).mean(axis=1)[: rule.most_groups]
    found: list[Look] = []
    ends = [*range(rule.groups_per_look, len(groups), rule.groups_per_look), len(groups)]
    for end in ends:
        ratio = log_likelihood_ratio(groups[:end], scores.shape[1], *rule.hypotheses)
        low, high = rule.bounds
        found.append(Look(end, ratio, "higher" if ratio >= high else "lower" if ratio <= low else None))
        if found[-1].verdict is not None:
            break
    return found


def is_decided(scores: np.ndarray, rule: PromotionRule) -> bool:
    """Whether no more groups have to be played after these, [n, P]."""
    if len(scores) >= rule.most_groups:
        return True
    return rule.name != "fixed" and len(scores) > 0 and looks(scores, rule)[-1].verdict is not None


def decide(evidence: Evidence, rule: PromotionRule, expected: MatchSubject) -> Decision:
    """Whether the candidate that is expected replaces the champion that is expected.

    Args:
        evidence: of a match.
        rule: when it is enough.
        expected: who is to be compared, and how; evidence of anything else is invalid.
    """
    if problems := _problems(evidence, rule, expected):
        nothing = Interval(float("nan"), float("nan"), float("nan"))
        return Decision(False, "invalid", tuple(problems), 0, nothing, float("nan"))
    return _fixed(evidence, rule) if rule.name == "fixed" else _sequential(evidence, rule)


def _problems(evidence: Evidence, rule: PromotionRule, expected: MatchSubject) -> list[str]:
    problems = [
        f"the evidence is of another {name}: {found}, not {wanted}"
        for name, found, wanted in zip(MatchSubject._fields, evidence.subject, expected, strict=True)
        if found != wanted
    ]
    if expected.candidate == expected.champion:
        problems.append("the candidate is the champion")
    if evidence.error is not None:
        problems.append(f"the match failed: {evidence.error}")
    if evidence.num_unfinished:
        problems.append(f"{evidence.num_unfinished} games were cut short")
    scores, openings = np.asarray(evidence.scores), np.asarray(evidence.openings)
    if scores.ndim != 2 or scores.size == 0:
        return [*problems, "no games were played"]
    if not (np.isfinite(scores).all() and (scores >= 0.0).all() and (scores <= 1.0).all()):
        problems.append("a score is not between 0 and 1")
    if openings.shape != scores.shape[:1]:
        problems.append(f"{len(openings)} openings for {len(scores)} groups of games")
    elif not np.array_equal(openings, np.arange(len(openings))):
        problems.append("the openings are not the first ones of the list, each once and in its order")
    if len(scores) > rule.most_groups:
        problems.append(f"{len(scores)} openings were played, and the rule allows {rule.most_groups}")
    elif len(scores) % rule.groups_per_look and len(scores) != rule.most_groups:
        problems.append(
            f"{len(scores)} openings end between two looks, one of which is after every {rule.groups_per_look}"
        )
    return problems


def _sequential(evidence: Evidence, rule: PromotionRule) -> Decision:
    last = looks(evidence.scores, rule)[-1]
    (elo_0, elo_1), (low, high) = rule.hypotheses, rule.bounds
    score = _score(evidence.scores[: last.num_groups])
    ratio = f"log-likelihood ratio {last.log_likelihood_ratio:+.2f} of {last.num_groups} openings"
    if last.verdict == "higher":
        reason = f"{ratio} is at least {high:.2f}: {elo_1:+g} Elo is accepted against {elo_0:+g}"
        return Decision(True, "promote", (reason,), last.num_groups, score, last.log_likelihood_ratio)
    if last.verdict == "lower":
        reason = f"{ratio} is at most {low:.2f}: {elo_0:+g} Elo is accepted against {elo_1:+g}"
        return Decision(False, "reject", (reason,), last.num_groups, score, last.log_likelihood_ratio)
    reason = f"{ratio} is between {low:.2f} and {high:.2f}"
    return Decision(False, "inconclusive", (reason,), last.num_groups, score, last.log_likelihood_ratio)


def _fixed(evidence: Evidence, rule: PromotionRule) -> Decision:
    number, score = len(evidence.scores), _score(evidence.scores)
    if number < rule.most_groups:
        reason = f"{number} of {rule.most_groups} openings were played"
        return Decision(False, "inconclusive", (reason,), number, score, float("nan"))
    promotes = bool(score.low > 0.5)
    place = "above" if promotes else "not above"
    reason = f"the lower bound {score.low:.3f} of the score over {number} openings is {place} one half"
    return Decision(promotes, "promote" if promotes else "reject", (reason,), number, score, float("nan"))


def _score(scores: np.ndarray) -> Interval:
    scores = np.asarray(scores, np.float64)
    return matches.group_interval(scores.mean(axis=1), scores.shape[1])
