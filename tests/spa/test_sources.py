"""Which stages a pipeline takes from another one, and what it refuses. Nothing is trained."""

import os
import signal

import pytest
from support.rows import row_file

from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.sections.spa import SPAConfig
from stoix_like.errors import INTERRUPTED, CheckpointError, ConfigError, RunError, StoixError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.datasets.row_files import TRAINING, VALIDATION, write_rows
from stoix_like.runtime.stages.manifest import Manifest, read_manifest, write_manifest
from stoix_like.runtime.stages.table import StageFiles
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.signed_json import signed_text
from stoix_like.spa import running
from stoix_like.spa.arms import STAGE_NAMES, arm_of
from stoix_like.spa.folders import BEGUN, Layout, Source, find_sources, write_sources
from stoix_like.spa.pipeline import Pipeline
from stoix_like.spa.running import PipelineOptions, run
from stoix_like.spa.table import fitting_sources, run_stage_of, stages_of_arm


def pipeline_at(root, **leaves):
    config = replace_leaves(SPAConfig(), leaves)
    return Pipeline(config, arm_of(config), Layout(root), SILENT, None)


def finish_stages(pipeline, names=STAGE_NAMES):
    """Manifests of stages, each with the digests of those that it reads, as if all had been done."""
    for name in names:
        files = StageFiles(pipeline.layout.root, stages_of_arm(pipeline.config, pipeline.arm))
        call = files.stages[name].call(files, pipeline.settings(name))
        files.folder(name).mkdir(parents=True)
        write_manifest(files.folder(name), Manifest(name, call.inputs, call.settings, {}, {"rows": 100}, {}))
    return pipeline


@pytest.mark.parametrize(
    ("leaves", "taken"),
    [
        ({}, "pretrain generate sft ppo evaluate"),
        ({"eval_interval": 3, "save_interval": 7}, "pretrain generate sft ppo evaluate"),
        ({"ppo_lr": 0.1}, "pretrain generate sft"),
        ({"sft_lr": 0.1}, "pretrain generate"),
        ({"arm": "belief"}, "pretrain"),
        ({"arm": "masked"}, "pretrain generate"),
        ({"arm": "vanilla"}, "pretrain"),
        ({"seed": 1}, ""),
        ({"pretrain_lr": 0.1}, ""),
    ],
)
def test_of_a_pipeline_the_first_stages_are_taken_that_are_the_same(tmp_path, leaves, taken):
    finish_stages(pipeline_at(tmp_path / "a"))
    found = fitting_sources(pipeline_at(tmp_path / "b", **leaves), find_sources([str(tmp_path / "a")]), {})
    assert " ".join(found) == taken
    assert all(folder == tmp_path / "a" / name for name, folder in found.items())


def test_what_a_pipeline_has_taken_from_elsewhere_is_taken_from_there(tmp_path):
    finish_stages(pipeline_at(tmp_path / "a"), ["pretrain", "generate"])
    layout = Layout(tmp_path / "b")
    layout.root.mkdir()
    write_sources(layout, {name: tmp_path / "a" / name for name in ("pretrain", "generate", "sft")})
    (tmp_path / "b" / "ppo").mkdir()
    write_manifest(tmp_path / "b" / "ppo", Manifest("ppo", {}, {}, {}, {}, {}))
    found = find_sources([str(tmp_path / "b"), str(tmp_path / "a")])
    where = {name: source.folder.resolve() for name, source in found.items()}
    assert where == {
        "pretrain": tmp_path / "a/pretrain",
        "generate": tmp_path / "a/generate",
        "ppo": tmp_path / "b/ppo",
    }


def test_a_named_stage_that_does_not_fit_is_refused(tmp_path):
    finish_stages(pipeline_at(tmp_path / "a"))
    other = pipeline_at(tmp_path / "b", pretrain_lr=0.1)
    named = find_sources([str(tmp_path / "a" / "pretrain")])
    with pytest.raises(ConfigError, match=r"pretrain_lr is 0.1, and it was begun with 0.003"):
        fitting_sources(other, named, {})
    with pytest.raises(ConfigError, match=r"pretrain_lr is 0.1, and it was begun with 0.003"):
        run(other.config, other.layout, PipelineOptions(None, named, ()), SILENT)
    assert not other.layout.root.exists()
    with pytest.raises(ConfigError, match=r"pretrain_lr is 0.1, and it was begun with 0.003"):
        run_stage_of(other, "pretrain", {"pretrain": tmp_path / "a" / "pretrain"})  # as noted before it was changed


def test_a_named_stage_of_another_base_is_refused(tmp_path):
    finish_stages(pipeline_at(tmp_path / "a"))
    other = finish_stages(pipeline_at(tmp_path / "b", pretrain_lr=0.1), ["pretrain"])
    with pytest.raises(CheckpointError, match="was made from other stages than those of"):
        fitting_sources(other, find_sources([str(tmp_path / "a" / "generate")]), {})
    with pytest.raises(CheckpointError, match="was made from other stages than those of"):
        run_stage_of(other, "generate", {"generate": tmp_path / "a" / "generate"})


def test_an_arm_without_fine_tuning_does_not_take_what_was_learned_after_it(tmp_path):
    """Even if all leaves that its PPO reads are those of the other arm."""
    fine_tuned = finish_stages(pipeline_at(tmp_path / "a", baseline_mode="worldmodel"))
    state = pipeline_at(tmp_path / "b", baseline_mode="worldmodel", arm="state")
    assert state.settings("ppo") == fine_tuned.settings("ppo")
    assert list(fitting_sources(state, find_sources([str(tmp_path / "a")]), {})) == ["pretrain"]
    with pytest.raises(CheckpointError, match="was made from other stages than those of"):
        run_stage_of(state, "ppo", {name: tmp_path / "a" / name for name in ("pretrain", "ppo")})


def test_what_was_taken_stays_and_what_fits_later_is_added(tmp_path):
    finish_stages(pipeline_at(tmp_path / "a"), ["pretrain"])
    whole, other = finish_stages(pipeline_at(tmp_path / "c")), pipeline_at(tmp_path / "b")
    noted = fitting_sources(other, find_sources([str(tmp_path / "a")]), {})
    assert list(noted) == ["pretrain"]
    found = fitting_sources(other, find_sources([str(tmp_path / "c")]), noted)
    assert found == noted | {name: whole.layout.stage(name) for name in STAGE_NAMES[1:]}


def test_a_stage_that_was_begun_with_other_settings_is_told_before_anything_is_written(tmp_path):
    one = finish_stages(pipeline_at(tmp_path / "a"), ["pretrain"])
    folder = tmp_path / "a" / "generate"
    begun = {"inputs": {}, "settings": one.settings("generate") | {"generate_batches": 7}}
    folder.mkdir()
    atomic_write_text(folder / BEGUN, signed_text(begun))
    before = sorted(tmp_path.rglob("*"))
    assert folder / BEGUN in before
    for stage in (None, "pretrain"):
        with pytest.raises(ConfigError, match="generate: generate_batches is 5, and it was begun with 7"):
            run(one.config, one.layout, PipelineOptions(stage, {}, ()), SILENT)
    named = PipelineOptions("ppo", find_sources([str(tmp_path / "a")]), ())
    with pytest.raises(RunError, match=r"the stage sft of .* is not done"):
        run(one.config, Layout(tmp_path / "b"), named, SILENT)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_stage_of_ones_own_is_not_replaced(tmp_path):
    finish_stages(pipeline_at(tmp_path / "a"))
    own = finish_stages(pipeline_at(tmp_path / "b"), ["pretrain"])
    whole = {name: Source(tmp_path / "a" / name, False) for name in STAGE_NAMES}
    assert "pretrain" not in fitting_sources(own, whole, {})
    with pytest.raises(ConfigError, match="has a stage pretrain of its own"):
        fitting_sources(own, {"pretrain": Source(tmp_path / "a" / "pretrain", True)}, {})


def test_a_stage_whose_base_has_changed_is_not_built_upon(tmp_path):
    one = finish_stages(pipeline_at(tmp_path / "a"))
    manifest = tmp_path / "a" / "pretrain" / "manifest.json"
    manifest.unlink()
    write_manifest(manifest.parent, Manifest("pretrain", {}, one.settings("pretrain"), {}, {"rows": 101}, {}))
    with pytest.raises(RunError, match=r"the stage generate of .* is due again"):
        run_stage_of(one, "sft", {})


def test_what_is_wrong_is_told_before_a_folder_is_made(tmp_path):
    options = PipelineOptions(None, {}, ())
    with pytest.raises(ConfigError, match=r"ppo: ppo.ppo_group_size: 8 does not divide ppo_envs = 100"):
        run(replace_leaves(SPAConfig(), {"ppo_envs": 100}), Layout(tmp_path / "a"), options, SILENT)
    with pytest.raises(ConfigError, match="the arm state has no stage sft"):
        run(
            replace_leaves(SPAConfig(), {"arm": "state"}), Layout(tmp_path / "a"), options._replace(stage="sft"), SILENT
        )
    with pytest.raises(RunError, match="there is no pipeline"):
        run(SPAConfig(), Layout(tmp_path / "a"), options._replace(stage="sft"), SILENT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("leaves", "error"),
    [
        ({"task_id": "Sudoku-text-v0", "rendering": "grid_positions"}, "has no rendering 'grid_positions'"),
        ({"num_heads": 7}, "hidden_dim: 96 is not divisible by num_heads 7"),
        ({"kwargs": {"foo": 1}}, "foo"),
        ({"kwargs": {"bank": "nope"}}, "nope"),
        ({"answer_length": 1}, "answer"),
        ({"arm": "plain_ppo", "kwargs": {"foo": 1}}, "foo"),
    ],
)
@pytest.mark.parametrize("stage", [None, "first"])
def test_a_world_or_an_agent_that_cannot_be_made_binds_nothing(tmp_path, leaves, error, stage):
    """What the hint says would be refused as another setting if the call had left its own behind."""
    one = pipeline_at(tmp_path / "a", **leaves)
    options = PipelineOptions(None if stage is None else one.arm.stages[0], {}, ())
    with pytest.raises(StoixError, match=error):
        run(one.config, one.layout, options, SILENT)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for layout in (Layout(tmp_path / "file" / "a"), Layout(tmp_path / "file")):
        with pytest.raises(RunError, match="Not a directory"):
            run(SPAConfig(), layout, PipelineOptions(None, {}, ()), SILENT)


def test_a_stage_elsewhere_that_lacks_a_file_is_told_by_its_name(tmp_path):
    finish_stages(pipeline_at(tmp_path / "a"))
    folder, other = tmp_path / "a" / "pretrain", pipeline_at(tmp_path / "b")
    manifest = read_manifest(folder)
    write_manifest(folder, manifest._replace(outputs={"params.safetensors": "0"}))
    for text in (tmp_path / "a", folder):
        with pytest.raises(CheckpointError, match=r"a/pretrain lacks its params.safetensors"):
            fitting_sources(other, find_sources([str(text)]), {})
    with pytest.raises(CheckpointError, match=r"a/pretrain lacks its params.safetensors"):
        run_stage_of(other, "pretrain", {"pretrain": folder})


def test_after_a_signal_no_further_stage_is_begun(tmp_path, monkeypatch):
    """The signal comes while a stage is at work that does not look for it."""
    one, begun = finish_stages(pipeline_at(tmp_path / "a")), []

    def signalled(_, name, __):
        begun.append(name)
        os.kill(os.getpid(), signal.SIGTERM)
        return read_manifest(tmp_path / "a" / name)

    monkeypatch.setattr(running, "run_stage_of", signalled)
    assert run(one.config, one.layout, PipelineOptions(None, {}, ()), SILENT) == INTERRUPTED
    assert begun == ["pretrain"]


def test_too_few_rows_for_a_step_are_told(tmp_path):
    one = finish_stages(pipeline_at(tmp_path / "a", sft_batch_size=500), ["pretrain", "generate"])
    folder, rows = tmp_path / "a" / "generate", row_file()
    outputs = {name: write_rows(folder / name, rows) for name in (TRAINING, VALIDATION)}
    write_manifest(folder, read_manifest(folder)._replace(outputs=outputs))
    with pytest.raises(RunError, match=f"sft_batch_size: 500 rows a step, and there are {len(rows.trajectory)} to"):
        run_stage_of(one, "sft", {})
    write_rows(folder / TRAINING, rows.take(rows.trajectory > 0))
    with pytest.raises(CheckpointError, match="its arrays have the hash"):
        run_stage_of(one, "sft", {})
