"""Tournaments of kept candidates: who enters, what they cost, and the intervals of their ratings."""

from support.loops import small_loop

from stoix_like.config.checks.access import replace_leaves
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.ratings import tournament


def test_a_tournament_needs_two_candidates(finished_loop, tmp_path):
    pipeline, *_ = finished_loop
    with small_loop(pipeline, tmp_path) as loop:
        loop.layout.root.mkdir(parents=True)
        begin.begin_lineage(loop.runner.pipeline)
        assert tournament.play_tournament(loop.runner.pipeline, 16, 4, 2) is None


def test_a_tournament_spends_no_more_than_it_may_and_knows_that_its_matches_share_openings(copied_loop, monkeypatch):
    """Also with another size of matches than the one before."""
    pipeline, folder = copied_loop
    rate, rated, games = tournament.ratings.rate, [], []
    monkeypatch.setattr(
        tournament.ratings, "rate", lambda records, **rest: rated.append(records) or rate(records, **rest)
    )
    with small_loop(pipeline, folder, replace_leaves(pipeline.config, {"pairs_per_look": 1})) as loop:
        for per_match in (2, 1):
            found = tournament.play_tournament(loop.runner.pipeline, 16, 4, per_match)
            games.append(sum(row["games"] for row in found["ratings"]))
            for record in rated[-1]:
                assert len(record.by_opening) * 2 == record.games
                assert sum(record.by_opening) == record.score
    assert games == [4 * 2 * 2] * 2
