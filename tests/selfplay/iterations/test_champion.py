"""What `make train-selfplay` promises: a champion of tic-tac-toe that never loses."""

import pytest

from stoix_like.bench.alphazero.exhaustive import chooser, make_table, play_exhaustively
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.runtime.arena.contestants import run_player
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.runs.saved import load_run
from stoix_like.runtime.runs.sources import load_config
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.pipeline.programs import Pipeline

NUM_ITERATIONS = 12  # as in the Makefile


@pytest.mark.full
def test_the_champion_loses_none_of_all_games_against_moves_that_make_no_mistake(tmp_path):
    argv = ["--save-dir", str(tmp_path), "--match-anchors", "null"]
    config = load_config(SelfPlayConfig, "selfplay", argv, "selfplay/tic_tac_toe").config
    pipeline = Pipeline(config, SILENT)
    table = make_table()
    first = losses(pipeline, table, lambda: run_iteration(pipeline))
    last = losses(pipeline, table, lambda: [run_iteration(pipeline) for _ in range(NUM_ITERATIONS - 1)])
    assert first > last == 0


def losses(pipeline, table, work):
    """Games that the champion loses with 16 simulations, once the work is done."""
    work()
    run = load_run(str(pipeline.layout.root))
    choose = chooser(run_player(run, 16))(run.network_params(run.params))
    return sum(play_exhaustively(table, choose, seat).losses for seat in (0, 1))
