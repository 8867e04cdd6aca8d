"""The breaker's truth table, by hand, with times that are given; and what of it survives a process."""

import contextlib

import pytest

from stoix_like.errors import RunError
from stoix_like.selfplay.events.breaker import Breaker, BreakerRule, Breakers, after_failure, retry_at, state
from stoix_like.selfplay.events.database import Database

RULE = BreakerRule(max_failures=3, pause=300.0)
OPEN = Breaker(failures=3, opened=1, opened_at=1000.0, pause=300.0)


@pytest.mark.parametrize(
    ("breaker", "now", "expected"),
    [
        (Breaker(), 0.0, "closed"),
        (Breaker(failures=2), 0.0, "closed"),
        (OPEN, 1000.0, "open"),
        (OPEN, 1299.9, "open"),
        (OPEN, 1300.0, "half_open"),
        (OPEN._replace(pause=600.0), 1599.9, "open"),
        (OPEN._replace(pause=600.0), 1600.0, "half_open"),
        # a clock that jumps back: by less than the pause it waits longer, by more it tries at once
        (OPEN, 900.0, "open"),
        (OPEN, 699.0, "half_open"),
        (OPEN, -1e9, "half_open"),
    ],
)
def test_states(breaker, now, expected):
    assert state(breaker, now) == expected


def test_pauses_double_up_to_an_hour():
    def pauses(rule, times):
        breaker, found = Breaker(), []
        for now in range(times):
            breaker = after_failure(breaker, rule, float(now), "no")
            found.append(breaker.pause)
        return found

    assert pauses(RULE, 8) == [0.0, 0.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0, 3600.0]
    assert pauses(RULE, 3000)[-1] == 3600.0
    assert pauses(BreakerRule(1, 7200.0), 2) == [7200.0, 7200.0]


def test_three_failures_in_a_row_open_it_and_a_failed_trial_at_once_again():
    breaker = Breaker()
    for now in (10.0, 20.0):
        breaker = after_failure(breaker, RULE, now, "no")
        assert state(breaker, now) == "closed"
        assert retry_at(breaker) is None
    breaker = after_failure(breaker, RULE, 30.0, "no")
    assert (state(breaker, 30.0), retry_at(breaker)) == ("open", 330.0)
    breaker = after_failure(breaker, RULE, 400.0, "still no")
    assert (state(breaker, 400.0), retry_at(breaker)) == ("open", 1000.0)
    assert breaker.error == "still no"


@pytest.fixture
def database(tmp_path):
    with contextlib.closing(Database(tmp_path)) as database:
        yield database


def opened(database):
    """Breakers of which one has opened at 1000 seconds."""
    breakers = Breakers(database, RULE)
    for _ in range(3):
        breakers.fail("game", "train", 1000.0, "no")
    return breakers


def test_asking_takes_nothing_and_a_trial_is_made_once(database):
    breakers = opened(database)
    assert not breakers.acquire("game", "train", 1299.0)
    for _ in range(5):
        assert breakers.state("game", "train", 1300.0) == "half_open"
    assert breakers.acquire("game", "train", 1300.0)
    assert not breakers.acquire("game", "train", 1300.0)
    assert not breakers.acquire("game", "train", 1e9)
    breakers.release("game", "train")  # the trial was interrupted
    assert breakers.acquire("game", "train", 1300.0)
    breakers.succeed("game", "train")
    assert breakers.read("game", "train") == Breaker()
    assert breakers.acquire("game", "train", 1300.0)


def test_breakers_are_by_game_and_stage_and_outlive_a_process(database, tmp_path):
    opened(database)
    database.close()
    with contextlib.closing(Database(tmp_path)) as again:
        breakers = Breakers(again, RULE)
        assert breakers.state("game", "train", 1100.0) == "open"
        assert breakers.state("game", "evaluate", 1100.0) == "closed"
        assert breakers.state("other", "train", 1100.0) == "closed"
        assert breakers.acquire("game", "train", 1300.0)
    with contextlib.closing(Database(tmp_path)) as killed:  # in the middle of its trial
        assert Breakers(killed, RULE).acquire("game", "train", 1300.0)


def test_who_starts_a_loop_by_hand_tries_at_once_what_had_failed(database):
    breakers = opened(database)
    breakers.fail("game", "export", 1000.0, "no")
    again = Breakers(database, RULE)
    assert again.try_at_once() == 1
    assert again.acquire("game", "train", 1001.0)
    assert not again.acquire("game", "train", 1001.0)  # one trial
    assert again.fail("game", "train", 1001.0, "no").pause == 600.0  # as after any other
    assert not again.acquire("game", "train", 1300.0)


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_trial_whose_end_cannot_be_written_counts_in_its_process(database, monkeypatch, succeeds):
    breakers = opened(database)
    assert breakers.acquire("game", "train", 1300.0)
    with monkeypatch.context() as patch, contextlib.suppress(RunError):
        patch.setattr(database, "transaction", busy)
        breakers.succeed("game", "train") if succeeds else breakers.fail("game", "train", 1300.0, "no")
        pytest.fail("it was written")
    assert breakers.acquire("game", "train", 1301.0) == succeeds
    assert Breakers(database, RULE).acquire("game", "train", 1301.0)  # after the end of this process
    assert breakers.acquire("game", "train", 1900.0)  # its pause has doubled
    breakers.succeed("game", "train")
    for each in (breakers, Breakers(database, RULE)):
        assert each.state("game", "train", 1900.0) == "closed"


def busy():
    raise RunError("the database is locked", "wait")
