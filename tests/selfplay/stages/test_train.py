"""The stage `train`: how long it trains, and a run that was killed, is incomplete, or has diverged."""

import shutil

import pytest
from support.pipelines import small_config

from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.training.callbacks import CONTINUE
from stoix_like.selfplay.files import records
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.stages import train


def test_the_number_of_updates_follows_new_positions_or_epochs(finished, tmp_path):
    pipeline, _ = finished
    samples = pipeline.settings.most_gradient_steps * 16
    assert samples == 64  # 4 * 4 positions, each 4 times
    assert train.num_updates(pipeline, 100, 48) == 3
    assert train.num_updates(pipeline, 100, 49) == 4
    assert train.num_updates(pipeline, 100, 0) == 1
    by_epochs = Pipeline(small_config(tmp_path, training_epochs=2.0), SILENT)
    assert train.num_updates(by_epochs, 100, 48) == 4  # 200 samples


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(copied):
    layout = copied.layout
    for folder in (layout.iteration(2), layout.iteration(1), layout.train_run / "checkpoints"):
        shutil.rmtree(folder)
    records.write_record(layout.champion, records.read_record(records.record_path(layout, 0)))
    assert (layout.train_run / "config.yaml").is_file()
    assert run_iteration(copied, IterationOptions(skip_evaluation=True)).trained.facts["updates"] >= 1


@pytest.mark.parametrize("gone", ["checkpoints", "checkpoints/*"])
def test_an_error_leaves_the_run_as_it_is(copied, tmp_path, gone):
    """The disk of its checkpoints is not mounted, or they were moved away."""
    run = copied.layout.train_run
    for path in run.glob(gone):
        path.rename(tmp_path / path.name)
    kept = {path.name for path in run.iterdir()}
    with pytest.raises(CheckpointError, match="lacks update"):
        run_iteration(copied, IterationOptions(skip_evaluation=True))
    assert {path.name for path in run.iterdir()} >= kept >= {"config.yaml", "metrics.jsonl"}


def test_the_hint_after_a_divergence_is_no_command_that_is_refused(copied, monkeypatch):
    """An iteration keeps the leaves that it was begun with; the next one learns from its games."""

    def diverged(*_, **__):
        raise RunError("a loss is not finite", f"lower the learning rates, and {CONTINUE}")

    monkeypatch.setattr(train, "train", diverged)
    with pytest.raises(RunError, match="not finite") as caught:
        run_iteration(copied)
    assert caught.value.hint.startswith("lower the learning rates, and begin the next iteration")
    assert caught.value.hint.endswith("--resume --new-iteration")
    changed = Pipeline(small_config(copied.layout.root.parent, actor_lr=1e-4), SILENT)  # as the hint says
    assert begin_iteration(changed, IterationOptions(new_iteration=True)) == 4
