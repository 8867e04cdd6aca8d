"""CMA-ES over two rates, against a bowl whose lowest point is known."""

import math

import pytest

from stoix_like.errors import MissingExtraError
from stoix_like.runtime.console import installation
from stoix_like.runtime.sweeps.cma_es import CmaEsSearch
from stoix_like.runtime.sweeps.space import Range

RANGES = {"rate": Range(1e-4, 1e-2, log=True), "decay": Range(1e-6, 1e-1, log=True)}


def bowl(parameters):
    """0 at a rate of 0.005 and a decay of 0.01; 1 a tenth of the rate, or a hundredth of the decay, away."""
    return math.log10(parameters["rate"] / 5e-3) ** 2 + (math.log10(parameters["decay"] / 1e-2) / 2.0) ** 2


def search(seed, trials, values=bowl):
    found, each = CmaEsSearch(RANGES, seed), []
    for _ in range(trials):
        asked = found.ask()
        found.tell(values(asked))
        each.append(asked)
    return found, each


def test_it_comes_near_the_lowest_point():
    early = late = 0.0  # of the first and the last generation
    for seed in range(4):
        _, asked = search(seed, 60)
        assert min(bowl(one) for one in asked) < 0.02
        assert all(RANGES[name].low <= value <= RANGES[name].high for one in asked for name, value in one.items())
        early, late = early + sum(map(bowl, asked[1:7])), late + sum(map(bowl, asked[-6:]))
    assert late < 0.2 * early


def test_it_asks_for_the_same_again_when_it_is_told_the_same():
    _, before = search(3, 20)
    again, first_half = search(3, 10)
    rest = []
    for _ in range(10):
        rest.append(again.ask())
        again.tell(bowl(rest[-1]))
    assert first_half + rest == before
    assert search(4, 20)[1] != before


def test_a_value_that_is_not_finite_counts_for_nothing():
    _, asked = search(0, 20, lambda one: math.nan if one["decay"] > 1e-3 else one["rate"])
    assert len(asked) == 20
    assert all(math.isfinite(value) for one in asked for value in one.values())


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr(installation, "is_installed", lambda module: module != "cmaes")
    with pytest.raises(MissingExtraError) as found:
        CmaEsSearch(RANGES, 0)
    assert "sweep" in found.value.hint
