"""Evidence is played again: what comes out is confirmed, what does not is false here, and not comparable elsewhere."""

import itertools
import json

import numpy as np
import pytest
from support.pipelines import champion_hash, changed, digests

from stoix_like.commands.selfplay.verify_evidence import main
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.hardware import numerics
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.manifest import read_manifest, write_manifest
from stoix_like.selfplay.files import records
from stoix_like.selfplay.iterations.begin import IterationOptions
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.pipeline import evidence
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import evaluate, promote, verification
from stoix_like.selfplay.stages.evaluate import PlannedMatch


def match_of(pipeline, number=2):
    evaluated = read_manifest(pipeline.layout.stage(number, "evaluate"))
    match = verification.recorded_match(pipeline.layout, number, evaluated)
    return match, verification.players_of(pipeline, number, match.subject)


def checked(pipeline, number=2):
    match, players = match_of(pipeline, number)
    return list(verification.check_match(pipeline, match, players))


def forge(pipeline):
    """Games with legal moves that others have played, in the place of those of the match, whatever names them too."""
    match, (candidate, champion) = match_of(pipeline)
    path, _ = match.files[0]
    arrays, folder = read_arrays(path), pipeline.layout.stage(2, "evaluate")
    progress = Progress(SILENT, pipeline.stop, "evaluate", "games", 4)
    options = []
    for pair in itertools.product((candidate.params, champion.params, pipeline.first_params), repeat=2):
        planned = PlannedMatch(match.subject, path.parent, pipeline.matches.runner, pair)
        played = evaluate.play_piece(pipeline, planned, arrays["opening"], 0, progress)
        if (np.asarray(played.moves) != arrays["moves"]).any():
            options.append(played)
    best = max(options, key=lambda played: float(np.mean(played.score)))  # so that they would promote
    others = {name: np.asarray(value) for name, value in best._asdict().items()}
    manifest = read_manifest(folder)
    name = write_arrays(path, arrays | others)
    outputs = manifest.outputs | {manifest.facts["match"][0]: name}
    write_manifest(folder, manifest._replace(outputs=outputs))
    return path


def test_evidence_is_confirmed_in_the_batches_in_which_it_was_played(copied, monkeypatch):
    run_iteration(changed(copied, promotion_rule="fixed"))
    original, seen = verification.play_piece, []

    def noted(pipeline, match, rows, index, progress):
        seen.append((index, rows.tolist()))
        return original(pipeline, match, rows, index, progress)

    monkeypatch.setattr(verification, "play_piece", noted)
    assert [piece.verdict for piece in checked(copied, 3)] == ["confirmed", "confirmed"]
    assert seen == [(0, [0, 1]), (1, [2, 3])]


def test_other_moves_are_false_where_they_were_played_and_not_comparable_elsewhere(copied, monkeypatch):
    path = evidence.notes_of(forge(copied))
    here = json.loads(path.read_text())["numerics"]
    noted = [
        ({"numerics": here}, "false", ""),
        ({"numerics": here | {"jaxlib": "0.0.1"}}, "not comparable", "with jaxlib 0.0.1"),
        ({"numerics": here | {"device": "TPU v9"}}, "not comparable", "with device TPU v9"),
        ({"numerics": here | {"further": "x"}}, "not comparable", "with further x"),
        ({}, "not comparable", "it does not say what it was played with"),
        ([], "not comparable", "it does not say what it was played with"),
    ]

    def check(verdict, reason):
        (piece,) = checked(copied)
        assert (piece.verdict, reason in piece.reason) == (verdict, True), piece.reason
        assert "is recorded, and" in piece.reason

    for notes, verdict, reason in noted:
        path.write_text(json.dumps(notes))
        check(verdict, reason)
    path.unlink()
    check("not comparable", "it does not say what it was played with")
    path.write_text(json.dumps({"numerics": here}))
    monkeypatch.setattr(numerics, "_CPU_INFO", copied.layout.root / "none")
    assert numerics.numerics()["processor"] == ""  # so that nothing is proved
    check("not comparable", "does not name its processor")


def test_evidence_that_is_true_is_confirmed_wherever_it_comes_out(copied):
    """Of any iteration."""
    for number in (1, 2):
        match, _ = match_of(copied, number)
        evidence.notes_of(match.files[0][0]).unlink()
        assert [piece.verdict for piece in checked(copied, number)] == ["confirmed"]


def test_the_first_move_that_differs_is_named():
    recorded = np.full((2, 2, 3), -1, np.int16)
    recorded[:, :, :2] = [[[4, 1], [4, 1]], [[4, 1], [4, 2]]]
    played = recorded.copy()
    arrays = {"moves": recorded, "opening": np.array([6, 7])}
    assert verification.first_difference(arrays, played) is None
    played[1, 1, 1], played[1, 1, 2] = 3, 5
    found = verification.first_difference(arrays, played)
    assert found == "opening 7, seat 1, ply 1: move 2 is recorded, and move 3 is played"
    recorded[1, 1, 1] = 3
    found = verification.first_difference(arrays, played)
    assert found == "opening 7, seat 1, ply 2: no move is recorded, and move 5 is played"


def before_the_promotion(pipeline):
    layout = pipeline.layout
    records.write_record(layout.champion, records.read_record(records.record_path(layout, 1)))
    (layout.stage(2, "promote") / "manifest.json").unlink()
    records.record_path(layout, 2).unlink()
    pipeline.memory.set_aside, pipeline.memory.confirmed = set(), set()


@pytest.mark.parametrize("is_verified", [True, False])
def test_forged_evidence_with_legal_moves_is_believed_unless_it_is_verified(copied, is_verified):
    """As docs/self-play.md says of the gate. What is not confirmed counts neither way: it is played again."""
    layout, before, champion = copied.layout, digests(copied.layout, 2), champion_hash(copied.layout)
    before_the_promotion(copied)
    path, warnings = forge(copied), []
    copied.reporter = SILENT._replace(warning=warnings.append)
    run_iteration(changed(copied, verify_evidence=is_verified))
    decided = read_manifest(layout.stage(2, "promote"))
    assert decided.recorded.get("verified_games") == (4 if is_verified else None)
    assert decided.facts["promoted"]
    assert path.is_file()
    if is_verified:
        assert len(warnings) == 1
        assert "is not confirmed (false): opening" in warnings[0]
        assert (digests(layout, 2), champion_hash(layout)) == (before, champion)
        assert len(copied.memory.confirmed) == 1


def test_a_device_that_does_not_repeat_its_results_ends_with_an_error_and_promotes_nobody(copied, monkeypatch):
    before_the_promotion(copied)
    changed(copied, verify_evidence=True)
    original = verification.play_piece

    def others(*arguments):
        played = original(*arguments)
        return played._replace(moves=np.asarray(played.moves) + np.int16(1))

    monkeypatch.setattr(verification, "play_piece", others)
    with pytest.raises(RunError, match=r"was made again in vain: piece_0000\.npz of iteration 2") as caught:
        run_iteration(copied)
    assert caught.value.hint == "this device does not repeat its results: leave out --verify-evidence"
    assert records.read_record(copied.layout.champion).iteration == 1
    monkeypatch.undo()
    copied.memory.set_aside = set()  # as in another process
    run_iteration(copied)
    assert records.read_record(copied.layout.champion).iteration == 2


def test_a_candidate_that_is_not_promoted_is_not_verified(copied, monkeypatch):
    monkeypatch.setattr(promote, "require_confirmed", lambda *_: pytest.fail("nothing is promoted"))
    before_the_promotion(copied)
    changed(copied, verify_evidence=True, auto_promote=False)
    assert not promote.promote_stage(copied, files_of(copied.layout, 2)).facts["promoted"]


def test_the_command_tells_what_came_of_each_piece(copied, capsys, monkeypatch):
    root = str(copied.layout.root)
    monkeypatch.setattr("stoix_like.runtime.hardware.devices.select", lambda _: None)  # it is running
    assert main([root]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["piece_0000.npz  4 games  confirmed", "1 confirmed"]
    forge(copied)
    assert main([root, "--iteration", "2"]) == 1
    told = capsys.readouterr().out
    assert "piece_0000.npz  4 games  false: opening" in told
    assert told.endswith("\n1 false\n")
    with pytest.raises(ConfigError, match="has no iteration 99"):
        main([root, "--iteration", "99"])


def test_the_command_refuses_what_no_match_has_decided_on(copied):
    layout = copied.layout
    run_iteration(copied, IterationOptions(skip_evaluation=True))
    with pytest.raises(CheckpointError, match="iteration 3 has no match"):
        main([str(layout.root), "--iteration", "3"])
    records.write_record(layout.champion, records.read_record(records.record_path(layout, 0)))
    with pytest.raises(ConfigError, match="the random network of iteration 0"):
        main([str(layout.root)])


def test_players_that_are_not_those_of_the_match_are_refused(copied):
    match, _ = match_of(copied)
    with pytest.raises(CheckpointError, match="has made the champion abc"):
        verification.players_of(copied, 2, match.subject._replace(champion="abc"))
    with pytest.raises(CheckpointError, match="has another candidate than the one that its match is of"):
        verification.players_of(copied, 2, match.subject._replace(candidate="abc"))
