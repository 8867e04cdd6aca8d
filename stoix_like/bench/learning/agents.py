"""Scores of agents that write their moves on FrozenLake, three seeds, each from a base of its own."""

from __future__ import annotations

from collections.abc import Iterator

from stoix_like.bench.learning.scores import Claim, claim_rows
from stoix_like.bench.learning.trainings import Training
from stoix_like.bench.timing.measure import Measurement

LEVELS = "frozenlaketext-1024"
BASE = Training("pretrain-frozen-lake", "pretrain/frozen_lake")
AGENT = Training("agent-frozen-lake", "agent/frozen_lake", base=BASE)
CLAIMS = (
    *(
        Claim(BASE, LEVELS, metric, f"{BASE.name}/{metric}")
        for metric in ("well_formed", "solve_rate", "random_solve_rate")
    ),
    *(Claim(AGENT, LEVELS, metric, f"{AGENT.name}/{metric}") for metric in ("well_formed", "solve_rate", "pass_at_8")),
)


def agent_learning_suite() -> Iterator[Measurement]:
    """The base: its format, and its success beside that of random actions. The agent: one sample, and the best of 8."""
    yield from claim_rows(CLAIMS, ())
