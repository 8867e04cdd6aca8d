"""Files that are damaged: an output is made again by its stage, with the same hashes; a note or a start is refused.

What becomes of damaged shards of the store is in test_restoring.py.
"""

import shutil

import numpy as np
import pytest
from support.damaged_pipelines import DAMAGES, flip
from support.pipelines import champion_hash, digests, undo

from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.runtime.stages.manifest import read_manifest, write_manifest
from stoix_like.selfplay.files import records, stored
from stoix_like.selfplay.iterations import begin
from stoix_like.selfplay.iterations.begin import IterationOptions
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.pipeline import evidence
from stoix_like.selfplay.stages import export, verification


def pieces(layout, number):
    """The files of the match of an iteration."""
    folder = layout.stage(number, "evaluate")
    return [(folder / name).resolve() for name in read_manifest(folder).facts["match"]]


def output(stage, name):
    return lambda layout, number: layout.stage(number, stage) / name


#: {what is damaged: (the first stage that is to do, its stage, its file in an iteration)}.
OUTPUTS = {
    "a shard": ("sync", "selfplay", output("selfplay", "shard_0001.npz")),
    "the window": ("train", "export", output("export", "window.npz")),
    "the validation window": ("train", "export", output("export", "validation.npz")),
    "the candidate, evaluated": ("evaluate", "train", output("train", "params.safetensors")),
    "the candidate, promoted": ("promote", "train", output("train", "params.safetensors")),
    "a piece": ("promote", "evaluate", lambda layout, number: pieces(layout, number)[0]),
}
#: Kinds of damage to one output, and one kind to each; all others are of `make test-full`.
QUICK = [(what, "a bit") for what in OUTPUTS] + [("a shard", kind) for kind in ("another", "gone")]


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        pytest.param(what, kind, marks=() if (what, kind) in QUICK else pytest.mark.full)
        for what in OUTPUTS
        for kind in DAMAGES
    ],
)
def test_a_damaged_output_is_made_again_and_the_iteration_ends_with_the_same_hashes(copied, what, kind):
    layout, (first, stage, place) = copied.layout, OUTPUTS[what]
    champion, warnings, path = champion_hash(layout), [], place(layout, 2)
    before = undo(layout, first)
    records.write_record(layout.champion, records.read_record(records.record_path(layout, 1)))
    DAMAGES[kind](path, place(layout, 1))
    copied.reporter = SILENT._replace(warning=warnings.append)
    run_iteration(copied)
    assert digests(layout, 2) == before
    assert champion_hash(layout) == champion
    if kind != "gone":  # which is no damage, but work that is to do
        assert len(warnings) == 1
        assert warnings[0].endswith(f"is set aside, and {stage} runs again")
        assert [one.is_file() for one in layout.quarantine.iterdir()] == [True]


def test_an_output_that_is_made_again_in_vain_is_an_error(copied, monkeypatch):
    undo(copied.layout, "train")
    flip(copied.layout.stage(2, "export") / "window.npz")
    original = export.write_arrays

    def broken(path, arrays):
        found = original(path, arrays)
        flip(path)
        return found

    monkeypatch.setattr(export, "write_arrays", broken)
    with pytest.raises(RunError, match=r"window\.npz was made again in vain: .*window\.npz cannot be read"):
        run_iteration(copied)


def cut_short(arrays):
    moves = arrays["moves"].copy()
    moves[0, 0, arrays["plies"][0, 0] - 1] = -1
    return {"moves": moves, "plies": (moves >= 0).sum(axis=2).astype(np.int32)}


#: {what a piece of a match says: (what it changes, why it is no evidence)}.
FORGED = {
    "scores": (lambda a: {"score": 1.0 - a["score"]}, "a score is not that of the moves"),
    "scores of none": (lambda a: {"score": a["score"] * np.nan}, "a score is not that of the moves"),
    "outcomes": (lambda a: {"outcome": -a["outcome"]}, "an outcome is not that of the moves"),
    "openings": (lambda a: {"opening": a["opening"] + 1}, "a game does not begin with its opening"),
    "an opening of none": (lambda a: {"opening": a["opening"] + 10**6}, "an opening that the list does not have"),
    "games cut short": (cut_short, "is not played to its end"),
    "games called so": (lambda a: {"is_unfinished": ~a["is_unfinished"]}, "is not played to its end"),
    "a subject": (lambda _: {"text_candidate": np.array("another")}, "games of another candidate"),
    "a kind": (lambda _: {"text_kind": np.array("selfplay")}, "games of another kind"),
    "a type": (lambda a: {"moves": a["moves"].astype(np.int32)}, "moves is int32"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_piece_of_a_match_is_no_evidence_even_if_a_manifest_has_its_hash(finished, tmp_path, what):
    pipeline, (_, second) = finished
    change, reason = FORGED[what]
    match = verification.recorded_match(pipeline.layout, 2, second.evaluated)
    arrays, path = read_arrays(match.files[0][0]), tmp_path / "piece_0000.npz"
    with pytest.raises(DamagedOutputError, match=f"is no evidence: .*{reason}") as caught:
        evidence.read_piece(pipeline, path, write_arrays(path, arrays | change(arrays)), match.subject)
    assert (caught.value.stage, caught.value.paths) == ("evaluate", (path,))


def test_a_forged_piece_is_played_again_before_anything_is_decided(copied):
    layout = copied.layout
    (path, *_), folder = pieces(layout, 2), layout.stage(2, "evaluate")
    before, arrays, manifest = undo(layout, "promote"), read_arrays(pieces(layout, 2)[0]), read_manifest(folder)
    outputs = {manifest.facts["match"][0]: write_arrays(path, arrays | FORGED["outcomes"][0](arrays))}
    write_manifest(folder, manifest._replace(outputs=manifest.outputs | outputs))
    run_iteration(copied)
    assert digests(layout, 2) == before


@pytest.mark.parametrize("name", ["sync", "export", "train"])
def test_a_finished_iteration_without_a_manifest_is_refused_instead_of_beginning_elsewhere(copied, name):
    """What the hint offers instead makes it again, with the same hashes."""
    layout, before = copied.layout, digests(copied.layout, 2)
    path = layout.stage(2, name) / "manifest.json"
    path.unlink()
    with pytest.raises(CheckpointError, match="is missing, and its iteration is finished") as caught:
        run_iteration(copied, IterationOptions(skip_evaluation=True))
    assert str(path) in caught.value.what
    last = layout.stage(2, "promote") / "manifest.json"
    assert f"remove {last} as well" in caught.value.hint
    last.unlink()
    shutil.rmtree(layout.iteration(3), ignore_errors=True)
    assert run_iteration(copied).iteration == 2
    assert digests(layout, 2) == before


def test_a_start_of_another_form_is_refused(copied):
    start = '{"player": {"hash": %s, "parameters": null}, "settings": %s}'
    settings = '{"skip_selfplay": false, "skip_evaluation": false, "data_path": null}, "kept": {"min_samples": "x"}'
    texts = ["", "[]", "null", "1", '"x"', "{}", "[" * 100_000, start % (1, "{}"), start % ('"a"', "{}")]
    for text in [*texts, start % ('"a"', settings)]:
        (copied.layout.iteration(2) / "iteration.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"iteration\.json cannot be read"):
            begin.read_start(copied.layout, 2)


def test_damaged_notes_of_retention_say_nothing(copied):
    layout = copied.layout
    for text in ("", "[]", "{}", '{"cleaned_below": [], "files": 5}', '{"files": [null, 5, []]}'):
        (layout.root / stored.MARK).write_text(text)
        (layout.iteration(1) / stored.REMOVED).write_text(text)
        assert (stored.removed_below(layout), stored.removed_files(layout, 1)) == (0, [])
