"""Tournaments of kept candidates: who enters, what they cost, and the intervals of their ratings."""

from support.pipelines import changed

from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.ratings import tournament


def test_a_tournament_needs_two_candidates(fresh):
    fresh.layout.root.mkdir()
    begin.begin_lineage(fresh)
    assert tournament.play_tournament(fresh, 16, 4, 2) is None


def test_a_tournament_spends_no_more_than_it_may_and_knows_that_its_matches_share_openings(copied, monkeypatch):
    """Also with another size of matches than the one before."""
    rate, rated, games = tournament.ratings.rate, [], []
    monkeypatch.setattr(
        tournament.ratings, "rate", lambda records, **rest: rated.append(records) or rate(records, **rest)
    )
    changed(copied, pairs_per_look=1)
    for per_match in (2, 1):
        found = tournament.play_tournament(copied, 16, 4, per_match)
        games.append(sum(row["games"] for row in found["ratings"]))
        for record in rated[-1]:
            assert len(record.by_opening) * 2 == record.games
            assert sum(record.by_opening) == record.score
    assert games == [4 * 2 * 2] * 2
