"""Two iterations of a made-up game of three and of four players: self-play, learning, matches, the gate, ratings, and a
process that dies on the way."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.deaths import killed_in
from support.piles import make_piles
from support.pipelines import digests, moved, small_pipeline

from stoix_like.config.checks import board_games
from stoix_like.envs.boards import registry
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.selfplay.files.folders import STAGE_NAMES
from stoix_like.selfplay.files.shards import check_shard
from stoix_like.selfplay.files.verify_games import rule_problem
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.pipeline import evidence
from stoix_like.selfplay.ratings.lineage import read_ancestry
from stoix_like.selfplay.ratings.tournament import play_tournament
from stoix_like.selfplay.stages import evaluate, promote, selfplay

ORDER = [0, 1, 2, 2, 1, 0, 1, 2]  # of movers: some move twice in a row


def piles(num_players):
    order = ORDER if num_players == 3 else [0, 1, 2, 3, 3, 2, 1, 0]
    name = "piles" if num_players == 3 else f"piles_{num_players}p"
    game = make_piles(num_players, order, max_plies=8)
    drawn = lambda state: (state.points[:1] + 5 * state.points[1:2]).astype(jnp.int8)  # [1], so that openings differ
    return game._replace(name=name, cells=drawn)


shown = []  # lines of progress


@pytest.fixture(scope="module", params=[3, 4])
def finished(request, tmp_path_factory):
    """(the pipeline of a game of so many players after two iterations, their reports)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(board_games.GAMES, "piles", (3, 4))
        patch.setitem(registry.BY_PLAYERS, "piles", piles)
        leaves = {"task_id": f"piles:{request.param}", "random_plies": 1, "match_opening_plies": 2}
        shown.clear()
        reporter = SILENT._replace(progress=shown.append)
        pipeline = small_pipeline(tmp_path_factory.mktemp("piles"), reporter, **leaves)
        yield pipeline, [run_iteration(pipeline), run_iteration(pipeline)], request.param


@pytest.mark.full
def test_stages_play_learn_and_decide(finished):
    pipeline, reports, num_players = finished
    assert pipeline.layout.root.name == f"piles_{num_players}p"
    compiled = [line.removesuffix(": compiling its program, unless it is in the cache") for line in shown]
    for label in ("evaluate", "evaluate against random"):
        assert compiled.count(label) == 1  # in two iterations
    for report in reports:
        assert list(digests(pipeline.layout, report.iteration)) == list(STAGE_NAMES)
        assert np.isfinite(report.trained.recorded["value_loss"])
        facts = report.promoted.facts
        assert facts["verdict"] in ("promote", "reject", "inconclusive")
    shard = read_arrays(pipeline.layout.stage(1, "selfplay") / "shard_0000.npz")
    check_shard(pipeline.game, shard, "here")
    assert rule_problem(pipeline.play_moves, pipeline.game, shard) is None
    assert shard["outcome"].shape[1] == shard["root_values"].shape[1] == num_players
    assert len(set(shard["player"].tolist())) == num_players


@pytest.mark.full
def test_a_match_has_the_candidate_in_every_seat_and_scores_by_outcome(finished):
    pipeline, reports, num_players = finished
    folder = pipeline.layout.stage(1, "evaluate")
    names = reports[0].evaluated.facts["match"]
    assert names
    for name in names:
        piece = read_arrays(folder / name)
        assert piece["score"].shape[1] == num_players
        own = np.diagonal(piece["outcome"], axis1=1, axis2=2)
        np.testing.assert_allclose(piece["score"], (own + 1.0) / 2.0)
        assert evidence._game_problem(pipeline, piece) is None
        false = piece | {"score": 1.0 - piece["score"]}
        if (piece["score"] != 0.5).any():
            assert evidence._game_problem(pipeline, false) == "a score is not that of the moves"


@pytest.mark.full
def test_candidates_are_rated_and_meet_in_a_tournament(finished):
    pipeline, _, _ = finished
    ancestry = read_ancestry(pipeline.layout)
    rows = {row.name: row for row in ancestry.table.rows}
    assert {"random"} <= rows.keys()
    assert sum(np.isfinite(row.rating) for row in rows.values()) >= 3
    found = play_tournament(pipeline, 3, 2, 2)
    assert found is not None


@pytest.mark.full
@pytest.mark.parametrize(
    ("owner", "name", "passes"),
    [(selfplay, "write_arrays", 1), (evaluate, "write_arrays", 0), (promote.records, "write_record", 1)],
    ids=["after a shard", "before a piece of the match", "in a promotion"],
)
def test_a_killed_iteration_goes_on_to_the_same_hashes(finished, tmp_path, owner, name, passes):
    pipeline, _, _ = finished
    reference = pipeline.layout
    fresh = moved(pipeline, tmp_path)
    try:
        is_first_record = lambda: owner is promote.records and not fresh.layout.stage(1, "evaluate").exists()
        with killed_in(owner, name, passes, counts=lambda: not is_first_record()):
            for _ in range(2):
                run_iteration(fresh)
        while not (fresh.layout.stage(2, "promote") / "manifest.json").exists():
            run_iteration(fresh)
        for number in (1, 2):
            assert digests(fresh.layout, number) == digests(reference, number)
    finally:
        moved(pipeline, reference.root.parent)
