"""The rows of the suite `ringrift`, small."""

import pytest

from stoix_like.bench.speed import ringrift


@pytest.mark.full
def test_every_part_is_a_row_and_games_stand_beside_the_plain_rules(monkeypatch):
    sizes = {"GAMES": ("square8",), "NUM_GAMES": 64, "NUM_PLIES": 90, "PLAIN_GAMES": 2, "SEARCHED": 4, "SIMULATIONS": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(ringrift, name, value)
    rows = {row.name.split("/")[1]: row for row in ringrift.ringrift_suite()}
    assert list(rows) == ["regions", "mobility", "legal_actions", "random_action", "step", "games", "search"]
    assert all(row.value > 0 for row in rows.values())
    games = rows["games"]
    assert games.unit == "decisions/s"
    assert games.reference > 0
    assert "games/s; reference: the plain rules" in games.note
