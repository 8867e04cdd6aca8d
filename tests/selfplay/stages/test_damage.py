"""Files that are damaged: made again by their stage, restored, or lost once and for all, with the same hashes after."""

import shutil
import zipfile

import numpy as np
import pytest
from support.pipelines import champion_hash, digests, small_config

from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.manifest import read_manifest, write_manifest
from stoix_like.selfplay.files import lost_shards, records, stored
from stoix_like.selfplay.files.folders import STAGE_NAMES
from stoix_like.selfplay.files.lost_shards import read_lost
from stoix_like.selfplay.files.shards import ShardOrigin, shard_arrays
from stoix_like.selfplay.iterations import begin, due
from stoix_like.selfplay.iterations.begin import IterationOptions, begin_iteration
from stoix_like.selfplay.iterations.steps import run_iteration, run_step
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.pipeline.progress import Interrupted, Progress
from stoix_like.selfplay.stages import export, restoring, selfplay, sync
from stoix_like.selfplay.watch import status, status_text

LATER = IterationOptions(skip_evaluation=True)


def flip(path):
    """One bit, under all names of the file; of an archive, the last of an array that is not compressed."""
    content = bytearray(path.read_bytes())
    place = len(content) // 2
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            member = next(one for one in archive.infolist() if one.compress_type == zipfile.ZIP_STORED)
        start = member.header_offset + 30 + len(member.filename)
        place = start + content[member.header_offset + 28] + member.compress_size - 1  # behind the extra field
    content[place] ^= 1
    with path.open("r+b") as file:
        file.write(content)


def undo(layout, first):
    """Takes the manifests of iteration 2 away, from a stage on; returns the digests of all."""
    before = digests(layout, 2)
    for name in STAGE_NAMES[STAGE_NAMES.index(first) :]:
        (layout.stage(2, name) / "manifest.json").unlink()
    return before


def heard(pipeline):
    """What the pipeline says from now on: (warnings, notes)."""
    warnings, notes = [], []
    pipeline.reporter = SILENT._replace(warning=warnings.append, note=notes.append)
    return warnings, notes


def a_piece(layout):
    return (layout.stage(2, "evaluate") / read_manifest(layout.stage(2, "evaluate")).facts["match"][0]).resolve()


def forged(change):
    """Writes a piece anew, and the manifest with its hash: nothing but the games tells that it is not true."""

    def damage(layout, path):
        arrays = read_arrays(path)
        folder = layout.stage(2, "evaluate")
        manifest = read_manifest(folder)
        outputs = manifest.outputs | {manifest.facts["match"][0]: write_arrays(path, arrays | change(arrays))}
        write_manifest(folder, manifest._replace(outputs=outputs))

    return damage


def cut_short(arrays):
    moves = arrays["moves"].copy()
    moves[0, 0, arrays["plies"][0, 0] - 1] = -1
    return {"moves": moves, "plies": (moves >= 0).sum(axis=2).astype(np.int32)}


#: {what is damaged: (the first stage that is to do, its file, how)} of outputs that stages of the iteration read.
OUTPUTS = {
    "a shard": ("sync", lambda layout: layout.stage(2, "selfplay") / "shard_0001.npz", None),
    "the window": ("train", lambda layout: layout.stage(2, "export") / "window.npz", None),
    "the validation window": ("train", lambda layout: layout.stage(2, "export") / "validation.npz", None),
    "the candidate, evaluated": ("evaluate", lambda layout: layout.stage(2, "train") / "params.safetensors", None),
    "the candidate, promoted": ("promote", lambda layout: layout.stage(2, "train") / "params.safetensors", None),
    "a piece": ("promote", a_piece, None),
    "a piece, scores": ("promote", a_piece, forged(lambda arrays: {"score": 1.0 - arrays["score"]})),
    "a piece, scores of none": ("promote", a_piece, forged(lambda arrays: {"score": arrays["score"] * np.nan})),
    "a piece, outcomes": ("promote", a_piece, forged(lambda arrays: {"outcome": -arrays["outcome"]})),
    "a piece, openings": ("promote", a_piece, forged(lambda arrays: {"opening": arrays["opening"] + 1})),
    "a piece, an opening of none": ("promote", a_piece, forged(lambda arrays: {"opening": arrays["opening"] + 10**6})),
    "a piece, cut short": ("promote", a_piece, forged(cut_short)),
    "a piece, called so": ("promote", a_piece, forged(lambda arrays: {"is_unfinished": ~arrays["is_unfinished"]})),
    "a piece, its subject": ("promote", a_piece, forged(lambda _: {"text_candidate": np.array("another")})),
    "a piece, its kind": ("promote", a_piece, forged(lambda _: {"text_kind": np.array("selfplay")})),
    "a piece, a type": ("promote", a_piece, forged(lambda arrays: {"moves": arrays["moves"].astype(np.int32)})),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_a_damaged_output_is_made_again_and_the_iteration_ends_with_the_same_hashes(copied, what):
    layout, (first, place, damage) = copied.layout, OUTPUTS[what]
    champion = champion_hash(layout)
    path = place(layout)
    before = undo(layout, first)
    records.write_record(layout.champion, records.read_record(records.record_path(layout, 1)))
    if damage is None:
        flip(path)
    else:
        damage(layout, path)
    warnings, _ = heard(copied)
    run_iteration(copied)
    assert len(warnings) == 1
    assert warnings[0].endswith(f"is set aside, and {read_stage(path)} runs again")
    assert digests(layout, 2) == before
    assert [path.is_file() for path in layout.quarantine.iterdir()] == [True]
    assert champion_hash(layout) == champion


def read_stage(path):
    return "evaluate" if "matches" in path.parts else path.parent.name


def test_an_output_that_is_made_again_in_vain_is_an_error(copied, monkeypatch):
    undo(copied.layout, "train")
    path = copied.layout.stage(2, "export") / "window.npz"
    flip(path)
    original = export.write_arrays

    def broken(path, arrays):
        found = original(path, arrays)
        flip(path)
        return found

    monkeypatch.setattr(export, "write_arrays", broken)
    with pytest.raises(RunError, match=r"window\.npz was made again in vain: .*window\.npz cannot be read"):
        run_iteration(copied)


def stored_shard(layout, number=2, index=0):
    return stored.added_shards(layout, number, read_manifest(layout.stage(number, "sync")))[index]


def linked(layout, number=2):
    """Makes store and stage one file again, as before the folder was copied."""
    folder = layout.stage(number, "selfplay")
    for name, found in read_manifest(folder).outputs.items():
        path = layout.shard(found[: stored.HASH_DIGITS])
        path.unlink()
        path.hardlink_to(folder / name)


def other_versions(pipeline):
    folder = pipeline.layout.stage(2, "selfplay")
    manifest = read_manifest(folder)
    recorded = manifest.recorded | {"versions": manifest.recorded["versions"] | {"jaxlib": "0.0.1"}}
    write_manifest(folder, manifest._replace(recorded=recorded))


def other_settings(pipeline):
    pipeline.config = small_config(pipeline.layout.root.parent, num_simulations=3)


def no_player(pipeline):
    (pipeline.layout.root / begin.read_start(pipeline.layout, 2).player.parameters).unlink()


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda _: None, None),
        (other_versions, "it was played with jaxlib 0.0.1"),
        (other_settings, "the settings of its self-play have changed since"),
        (no_player, "its player cannot be read"),
    ],
)
def test_a_damaged_shard_of_ours_is_played_again_and_taken_only_with_the_same_hash(copied, prepare, reason):
    layout = copied.layout
    linked(layout)
    shard, champion = stored_shard(layout), layout.champion.read_bytes()
    flip(shard.path)
    prepare(copied)
    copied.memory.confirmed = set()
    warnings, notes = heard(copied)
    found = restoring.restore_shard(copied, shard, "it is torn")
    assert found is (reason is None)
    assert shard.path.is_file() is found
    assert (len(warnings), len(notes)) == ((0, 1) if found else (1, 0))
    assert (layout.quarantine / f"store-{shard.path.name}").is_file()
    assert [one.reason[: len(reason)] for one in read_lost(layout).values()] == ([] if found else [reason])
    assert layout.champion.read_bytes() == champion
    if found:
        assert stored.read_games(shard.path).origin == shard.origin
        assert shard.path.samefile(layout.stage(2, "selfplay") / "shard_0000.npz")


def test_games_that_come_out_otherwise_are_not_taken(copied, monkeypatch):
    linked(copied.layout)
    shard, original = stored_shard(copied.layout), selfplay.play_shard
    flip(shard.path)
    monkeypatch.setattr(selfplay, "play_shard", lambda pipeline, number, *rest: original(pipeline, number + 1, *rest))
    assert restoring.restore_shard(copied, shard, "it is torn") is False
    assert read_lost(copied.layout)[shard.hash].reason == "its games were played again and are others here"
    assert not shard.path.exists()


def test_a_shard_of_format_2_is_played_again_in_its_format(copied):
    """Its file is that of an older version, whose games have other numbers."""
    layout, folder = copied.layout, copied.layout.stage(2, "selfplay")
    manifest = read_manifest(folder)
    start = begin.read_start(layout, 2)
    player = restoring.self_player(copied, start.player)
    progress = Progress(SILENT, copied.stop, "selfplay", "games", 5)
    records = selfplay.play_shard(copied, 2, 0, 5, player.params, progress)
    origin = ShardOrigin(0, 2, 0, player.hash, "gumbel-mcts")
    name = write_arrays(folder / "shard_0000.npz", shard_arrays(copied.game, records, origin, 2))
    write_manifest(folder, manifest._replace(outputs=manifest.outputs | {"shard_0000.npz": name}))
    flip(folder / "shard_0000.npz")
    shard = stored.StoredShard(layout.shard(name[: stored.HASH_DIGITS]), 2, 5, 30)
    assert restoring.restore_shard(copied, shard, "it is torn") is True
    assert str(read_arrays(shard.path)["text_format"]) == "2"


@pytest.fixture
def mixed(copied, tmp_path):
    """The pipeline in its third iteration, which has taken in a shard from elsewhere: (pipeline, that folder)."""
    theirs = tmp_path / "theirs"
    progress = Progress(SILENT, copied.stop, "selfplay", "games", 5)
    records = selfplay.play_shard(copied, 900, 0, 5, copied.first_params, progress)
    write_arrays(theirs / "one.npz", shard_arrays(copied.game, records, ShardOrigin(0, 900, 0, "p", "e")))
    copied.config = small_config(copied.layout.root.parent, sync_from=str(theirs))
    number = begin_iteration(copied, LATER)
    for stage in ("selfplay", "sync"):
        run_step(copied, number, due.Step(stage))
    return copied, theirs


def foreign_shard(layout):
    return next(shard for shard in stored.stored_shards(layout, 3) if shard.is_foreign)


@pytest.mark.parametrize("place", ["{name}", "store/{name}", "one.npz"])
def test_a_damaged_shard_of_another_folder_is_taken_from_there_again(mixed, place):
    pipeline, theirs = mixed
    shard = foreign_shard(pipeline.layout)
    copy = theirs / place.format(name=shard.path.name)
    copy.parent.mkdir(exist_ok=True)
    (theirs / "one.npz").rename(copy)
    flip(shard.path)
    report = run_iteration(pipeline, LATER)
    assert "lost" not in report.exported.inputs
    assert shard.path.is_file()


def test_a_lost_shard_is_an_input_of_the_next_window_and_of_no_finished_one(mixed):
    pipeline, theirs = mixed
    layout, done = pipeline.layout, {number: digests(pipeline.layout, number) for number in (1, 2)}
    shard = foreign_shard(layout)
    totals = status.read_status(layout.root.parent)["games"][0]["lost"]
    assert totals == {"shards": 0, "games": 0, "positions": 0}
    flip(shard.path)
    (theirs / "one.npz").unlink()
    warnings, _ = heard(pipeline)
    first = run_iteration(pipeline, LATER)
    assert len(warnings) == 1
    assert "it came from elsewhere, and is not there any more: its 5 games are lost" in warnings[0]
    assert first.exported.facts["lost"] == [shard.hash]
    totals = status.read_status(layout.root.parent)["games"][0]["lost"]
    assert totals == {"shards": 1, "games": 5, "positions": shard.num_positions}
    assert any("1 shard lost" in line for line in status_text.status_lines(status.read_status(layout.root.parent)))
    second = run_iteration(pipeline, LATER)
    assert len(warnings) == 1  # it is said once
    assert second.exported.inputs["lost"] == first.exported.inputs["lost"]
    assert {number: digests(layout, number) for number in (1, 2)} == done
    for name in ("export", "train", "promote"):
        (layout.stage(4, name) / "manifest.json").unlink()
    layout.lost.unlink()  # it is found again
    assert run_iteration(pipeline, LATER).exported.digest == second.exported.digest


def test_a_finished_window_is_kept_whatever_is_lost_later(mixed):
    pipeline, theirs = mixed
    layout = pipeline.layout
    run_step(pipeline, 3, due.Step("export"))
    before = read_manifest(layout.stage(3, "export"))
    shard = foreign_shard(layout)
    (theirs / "one.npz").unlink()
    flip(shard.path)
    assert restoring.restore_shard(pipeline, shard, "it is torn") is False
    assert export.export_stage(pipeline, files_of(pipeline.layout, 3)) == before
    assert due.due_step(layout, 3) == due.Step("train")


def test_a_damaged_list_of_what_is_lost_is_found_again(mixed):
    pipeline, theirs = mixed
    layout = pipeline.layout
    (theirs / "one.npz").unlink()
    shard = foreign_shard(layout)
    shard.path.unlink()
    run_step(pipeline, 3, due.Step("export"))
    before = read_manifest(layout.stage(3, "export"))
    (layout.stage(3, "export") / "manifest.json").unlink()
    for text in ("", "[]", "{}", layout.lost.read_text().replace('"sha256": "', '"sha256": "0')):
        layout.lost.write_text(text)
        assert lost_shards.read_lost(layout) == {}
    assert export.export_stage(pipeline, files_of(pipeline.layout, 3)).digest == before.digest


def test_a_lost_shard_of_a_manifest_that_gives_names_alone_is_left_out_of_the_window(copied):
    layout, folder = copied.layout, copied.layout.stage(2, "sync")
    other_versions(copied)
    shard, synced = stored_shard(layout), read_manifest(folder)
    names = [row[0] for row in synced.facts["added"]]
    write_manifest(folder, synced._replace(facts=synced.facts | {"added": names}))  # as older versions wrote it
    for path in (shard.path, layout.stage(2, "selfplay") / "shard_0000.npz"):
        path.unlink()
    (layout.stage(2, "export") / "manifest.json").unlink()
    exported = export.export_stage(copied, files_of(copied.layout, 2))
    assert exported.facts["lost"] == [shard.hash]


def test_a_search_for_copies_in_other_folders_ends_at_a_signal(mixed):
    pipeline, _ = mixed
    shard = foreign_shard(pipeline.layout)
    flip(shard.path)
    pipeline.stop.is_set = True
    with pytest.raises(Interrupted):
        restoring.restore_shard(pipeline, shard, "it is torn")
    assert not read_lost(pipeline.layout)
    pipeline.stop.is_set = False
    assert restoring.restore_shard(pipeline, shard, "it is torn") is True


@pytest.mark.parametrize("name", ["sync", "export", "train"])
def test_a_finished_iteration_without_a_manifest_is_refused_instead_of_beginning_elsewhere(copied, name):
    """What the hint offers instead makes it again, with the same hashes."""
    layout, before = copied.layout, digests(copied.layout, 2)
    path = layout.stage(2, name) / "manifest.json"
    path.unlink()
    with pytest.raises(CheckpointError, match="is missing, and its iteration is finished") as caught:
        run_iteration(copied, LATER)
    assert str(path) in caught.value.what
    last = layout.stage(2, "promote") / "manifest.json"
    assert f"remove {last} as well" in caught.value.hint
    last.unlink()
    shutil.rmtree(layout.iteration(3), ignore_errors=True)
    assert run_iteration(copied).iteration == 2
    assert digests(layout, 2) == before


@pytest.mark.parametrize("gone", ["checkpoints", "checkpoints/*"])
def test_an_error_leaves_the_run_as_it_is(copied, tmp_path, gone):
    """The disk of its checkpoints is not mounted, or they were moved away."""
    run = copied.layout.train_run
    for path in run.glob(gone):
        path.rename(tmp_path / path.name)
    kept = {path.name for path in run.iterdir()}
    with pytest.raises(CheckpointError, match="lacks update"):
        run_iteration(copied, LATER)
    assert {path.name for path in run.iterdir()} >= kept >= {"config.yaml", "metrics.jsonl"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "1", '"x"', "{}", "[" * 100_000),
        '{"player": {"hash": 1, "parameters": null}, "settings": {}}',
        '{"player": {"hash": "a", "parameters": null}, "settings": {}}',
        '{"player": {"hash": "a", "parameters": null}, "settings": {"skip_selfplay": false, "skip_evaluation": false, '
        '"data_path": null}, "kept": {"min_samples": "x"}}',
    ],
)
def test_a_start_of_another_form_is_refused(copied, text):
    (copied.layout.iteration(2) / "iteration.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"iteration\.json cannot be read"):
        begin.read_start(copied.layout, 2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cleaned_below": [], "files": 5}', '{"files": [null, 5, []]}'])
def test_damaged_notes_of_retention_say_nothing(copied, text):
    layout = copied.layout
    (layout.root / stored.MARK).write_text(text)
    (layout.iteration(1) / stored.REMOVED).write_text(text)
    assert (stored.removed_below(layout), stored.removed_files(layout, 1)) == (0, [])


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("where", ["_quarantine", "link", "write_arrays", "add_lost"])
@pytest.mark.parametrize("after", [False, True])
def test_a_restoration_that_is_killed_goes_on_to_the_same_end(mixed, monkeypatch, where, after):
    pipeline, theirs = mixed
    layout = pipeline.layout
    (theirs / "one.npz").unlink()
    linked(layout)
    ours, others = stored_shard(layout), foreign_shard(layout)
    for shard in (ours, others):
        flip(shard.path)
    module = lost_shards if where == "add_lost" else restoring
    original = getattr(module, where)

    def dying(*arguments):
        if after:
            original(*arguments)
        raise Killed

    monkeypatch.setattr(module, where, dying)
    with pytest.raises(Killed):
        run_step(pipeline, 3, due.Step("export"))
    monkeypatch.undo()
    report = run_iteration(pipeline, LATER)
    assert report.exported.facts["lost"] == [others.hash]
    assert stored.read_games(ours.path).origin == ours.origin
    assert read_lost(layout).keys() == {others.hash}


def test_a_shard_of_an_iteration_that_was_left_is_played_again_by_sync(copied):
    number = begin_iteration(copied)
    run_step(copied, number, due.Step("selfplay"))
    flip(copied.layout.stage(number, "selfplay") / "shard_0000.npz")
    report = run_iteration(copied, IterationOptions(new_iteration=True, skip_evaluation=True))
    assert report.synced.facts["games"] == 40
    assert not read_lost(copied.layout)


def test_a_window_that_reaches_back_to_removed_shards_ends_there(copied):
    """Shards were lost, so that it reaches further than retention had foreseen."""
    layout = copied.layout
    (layout.root / stored.MARK).write_text('{"cleaned_below": 2}')
    for shard in stored.stored_shards(layout, 1):
        shard.path.unlink()
    other = small_config(layout.root.parent, window_positions=1000)
    copied.config = other
    warnings, _ = heard(copied)
    report = run_iteration(copied, LATER)
    assert report.exported.inputs["ends_at"] == "1"
    assert "lost" not in report.exported.inputs
    assert warnings == []
    window = read_arrays(layout.stage(3, "export") / "window.npz")
    assert set(window["iteration"].tolist()) == {2, 3}


def test_own_files_are_taken_for_those_from_elsewhere_with_their_origin(copied, tmp_path):
    """Before ours are played, and after: what is falsified displaces nothing, and counts once."""
    layout, theirs = copied.layout, tmp_path / "theirs"
    progress = Progress(SILENT, copied.stop, "selfplay", "games", 5)
    champion = begin.read_champion(copied)[1]

    def falsified(number, name):
        records = selfplay.play_shard(copied, number, 0, 5, champion.params, progress)
        records = records._replace(root_values=-records.root_values)
        player = begin.read_start(layout, number).player.hash if number == 2 else champion.hash
        write_arrays(
            theirs / name, shard_arrays(copied.game, records, ShardOrigin(0, number, 0, player, "gumbel-mcts"))
        )

    falsified(2, "known.npz")
    falsified(4, "coming.npz")  # of the shard that this pipeline plays next but one
    copied.config = small_config(layout.root.parent, sync_from=str(theirs))
    _, notes = heard(copied)
    third = run_iteration(copied, LATER)
    assert third.synced.recorded["duplicates"] == ["known.npz"]
    assert [text.split(" is left out")[0] for text in notes] == [str(theirs / "known.npz")]
    assert third.synced.facts["games"] == 20 + 10 + 5
    fourth = run_iteration(copied, LATER)  # its player is that of the third: without evaluation none is promoted
    assert fourth.synced.facts["displaced"] == [[champion.hash, 0, 4, 0]]
    assert fourth.synced.facts["games"] == 20 + 10 + 10
    assert fourth.synced.facts["shards"] == 8
    own = stored.read_games(layout.stage(4, "selfplay") / "shard_0000.npz")
    assert [shard.hash for shard in stored.stored_shards(layout, 4) if shard.is_foreign] == []
    window = read_arrays(layout.stage(4, "export") / "window.npz")
    held_out = read_arrays(layout.stage(4, "export") / "validation.npz")
    assert {*own.ids.tolist()} <= {*window["game_id"].tolist(), *held_out["game_id"].tolist()}


def test_a_table_of_sync_counts_each_origin_once_in_a_new_process(copied, tmp_path):
    theirs = tmp_path / "theirs"
    progress = Progress(SILENT, copied.stop, "selfplay", "games", 5)
    for index, sign in enumerate((1, -1)):  # two strangers that say the same of themselves
        records = selfplay.play_shard(copied, 900, 0, 5, copied.first_params, progress)
        records = records._replace(root_values=sign * records.root_values)
        write_arrays(theirs / f"{index}.npz", shard_arrays(copied.game, records, ShardOrigin(0, 900, 0, "p", "e")))
        copied.config = small_config(copied.layout.root.parent, sync_from=str(theirs))
        copied.memory = type(copied.memory)()
        copied.layout.iteration(3 + index).mkdir()
        synced = sync.sync_stage(copied, files_of(copied.layout, 3 + index))
        assert synced.facts["games"] == 25
        assert synced.recorded["duplicates"] == ([] if index == 0 else ["1.npz"])
