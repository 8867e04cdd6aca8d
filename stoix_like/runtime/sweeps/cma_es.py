"""CMA-ES over a few numbers, by Optuna's sampler. The study stays in memory, for that sampler keeps pickles in a file.

It samples the same after the same values were told, so whoever notes them can go on after a kill.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from typing import Any

from stoix_like.runtime.console import installation
from stoix_like.runtime.sweeps.space import Range
from stoix_like.runtime.sweeps.study import distribution, require_optuna


def require_cma_es() -> None:
    """Raises MissingExtraError if Optuna or the package of its sampler is not installed."""
    installation.require_extra("a sweep by CMA-ES", "sweep", "optuna", "cmaes")


class CmaEsSearch:
    """A search for the parameters with the lowest value (Hansen 2016, arXiv 1604.00772). The first are drawn at random.

    Args:
        ranges: of the parameters; the first generation is drawn around their middle.
        seed: of the samples.

    Raises:
        MissingExtraError: a package is not installed.
    """

    def __init__(self, ranges: Mapping[str, Range], seed: int) -> None:
        require_cma_es()
        optuna = require_optuna()
        self._distributions = {name: distribution(one) for name, one in ranges.items()}
        self._study = optuna.create_study(sampler=optuna.samplers.CmaEsSampler(seed=seed), direction="minimize")
        self._asked = collections.deque[Any]()  # trials whose values are not told yet

    def ask(self) -> dict[str, float]:
        """The parameters of the next trial. Several may be asked for before their values are told."""
        trial = self._study.ask(fixed_distributions=self._distributions)
        self._asked.append(trial)
        return {name: float(value) for name, value in trial.params.items()}

    def tell(self, value: float) -> None:
        """The value of the first trial that was asked for and not told; one that is not finite counts as failed."""
        states, trial = require_optuna().trial.TrialState, self._asked.popleft()
        if math.isfinite(value):
            self._study.tell(trial, value)
        else:
            self._study.tell(trial, state=states.FAIL)
