"""Hashes, array files, manifests, and when a stage runs again. Damaged files: tests/runtime/storage/test_damage.py."""

import json

import numpy as np
import pytest
from support.asserts import refused

from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.hashes import array_hash, tree_hash
from stoix_like.runtime.stages.manifest import FILE, Manifest, read_manifest, write_manifest
from stoix_like.runtime.stages.run import StageCall, StageResult, run_stage
from stoix_like.runtime.stages.table import Stage, StageFiles, first_due
from stoix_like.runtime.storage.signed_json import signed_text

ARRAYS = {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": np.float32([0.5]), "text": np.array("word")}


def test_a_hash_covers_names_types_shapes_and_bytes_and_no_order():
    found = array_hash(ARRAYS)
    assert array_hash(dict(reversed(ARRAYS.items()))) == found
    others = [
        {**ARRAYS, "a": ARRAYS["a"].reshape(3, 2)},
        {**ARRAYS, "a": ARRAYS["a"].astype(np.int32)},
        {**ARRAYS, "b": np.float32([0.25])},
        {"c": ARRAYS["a"], "b": ARRAYS["b"], "text": ARRAYS["text"]},
        {name: ARRAYS[name] for name in ("a", "b")},
    ]
    assert len({found, *map(array_hash, others)}) == 6
    assert array_hash({"a": np.asfortranarray(ARRAYS["a"])}) == array_hash({"a": ARRAYS["a"]})


def test_a_tree_is_hashed_by_the_paths_of_its_leaves():
    tree = {"x": [np.zeros(2), np.ones(2)]}
    assert tree_hash(tree) != tree_hash({"x": [np.ones(2), np.zeros(2)]})
    assert tree_hash(tree) == tree_hash({"x": [np.zeros(2), np.ones(2)]})


def test_arrays_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "new" / "arrays.npz"
    found = write_arrays(path, ARRAYS)
    read = read_arrays(path, found)
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype
    with np.load(path) as stored:  # it is an ordinary file of NumPy
        np.testing.assert_array_equal(stored["a"], ARRAYS["a"])
    assert list(path.parent.iterdir()) == [path]


def test_objects_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_arrays(tmp_path / "a.npz", {"a": np.array([{}], object)})
    assert not list(tmp_path.iterdir())
    np.savez(tmp_path / "b.npz", a=np.array([{}], object))
    with pytest.raises(CheckpointError, match="pickled objects, which are never loaded"):
        read_arrays(tmp_path / "b.npz")


def test_a_plain_and_a_changed_file_are_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    found = write_arrays(path, ARRAYS)
    np.save(tmp_path / "plain.npy", np.zeros(3))
    (tmp_path / "plain.npy").rename(path)
    with pytest.raises(CheckpointError, match="torn, or no"):
        read_arrays(path)
    write_arrays(path, {**ARRAYS, "b": np.float32([1.0])})
    with pytest.raises(CheckpointError, match=f"its manifest names {found[:12]}"):
        read_arrays(path, found)


CALL = StageCall("double", {"number": "3"}, {"factor": 2})


class Work:
    """Makes a file, and counts how often the stage ran."""

    def __init__(self, folder):
        self.folder, self.times = folder, 0

    def __call__(self):
        self.times += 1
        (self.folder / "out.npz").touch()
        return StageResult({"out.npz": "hash"}, {"result": 6}, {"attempt": self.times})


def test_a_stage_runs_once_for_the_same_inputs_and_settings(tmp_path):
    work = Work(tmp_path / "stage")
    first, again = (run_stage(tmp_path / "stage", CALL, work) for _ in range(2))
    assert work.times == 1
    assert first == again
    assert (first.outputs, first.facts) == ({"out.npz": "hash"}, {"result": 6})
    assert first.recorded["attempt"] == 1
    assert {"began", "seconds", "host", "versions"} <= first.recorded.keys()


def test_other_inputs_run_it_again_and_other_settings_are_refused(tmp_path):
    work = Work(tmp_path)
    before = run_stage(tmp_path, CALL, work)
    with pytest.raises(ConfigError, match="double: factor is 3, and it was begun with 2"):
        run_stage(tmp_path, CALL._replace(settings={"factor": 3}), work)
    assert read_manifest(tmp_path) == before
    found = run_stage(tmp_path, CALL._replace(inputs={"number": "4"}), work)
    assert (work.times, found.inputs) == (2, {"number": "4"})


def test_a_stage_whose_output_is_missing_runs_again(tmp_path):
    work = Work(tmp_path)
    first = run_stage(tmp_path, CALL, work)
    (tmp_path / "out.npz").unlink()
    again = run_stage(tmp_path, CALL, work)
    assert work.times == 2
    assert first.digest == again.digest


def test_a_stage_that_fails_is_not_done_and_no_older_manifest_says_so(tmp_path):
    run_stage(tmp_path, CALL, Work(tmp_path))

    def fail():
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run_stage(tmp_path, CALL._replace(inputs={"number": "4"}), fail)
    assert read_manifest(tmp_path) is None


#: What each of three stages reads.
TABLE = (
    Stage("collect", ("count",), lambda files: {}, None),
    Stage("fit", (), lambda files: {"data": files.done("collect").outputs["data.npz"]}, None),
    Stage("judge", (), lambda files: {"fit": files.digest("fit")}, None),
)


def finish(root, name, inputs, outputs=()):
    """Writes the manifest of a stage, and empty outputs."""
    (root / name).mkdir(parents=True, exist_ok=True)
    for file in outputs:
        (root / name / file).touch()
    write_manifest(root / name, Manifest(name, inputs, {}, dict.fromkeys(outputs, f"hash of {name}"), {}, {}))


def due(root):
    found = first_due(TABLE, StageFiles(root, TABLE))
    return None if found is None else found.name


def test_what_is_due_is_a_function_of_the_table_and_the_manifests(tmp_path):
    assert due(tmp_path) == "collect"
    finish(tmp_path, "collect", {}, ["data.npz"])
    assert due(tmp_path) == "fit"
    finish(tmp_path, "fit", {"data": "hash of collect", "round": "1"})  # it may name more than the table knows
    fit = read_manifest(tmp_path / "fit")
    assert due(tmp_path) == "judge"
    finish(tmp_path, "judge", {"fit": fit.digest})
    assert due(tmp_path) is None
    finish(tmp_path, "fit", {"data": "hash of other data"})
    assert due(tmp_path) == "fit"
    finish(tmp_path, "fit", {"data": "hash of collect", "round": "2"})
    assert due(tmp_path) == "judge"  # its digest is another one
    (tmp_path / "collect" / "data.npz").unlink()
    assert due(tmp_path) == "collect"


def test_a_stage_that_is_skipped_is_not_due_and_one_that_is_needed_is_named(tmp_path):
    assert first_due(TABLE[2:], StageFiles(tmp_path, TABLE)).name == "judge"
    with refused(RunError, f"the stage collect of {tmp_path} is not done", "run the stages in their order"):
        TABLE[1].call(StageFiles(tmp_path, TABLE), {})


def test_a_call_names_the_inputs_of_the_table_and_those_of_the_stage(tmp_path):
    finish(tmp_path, "collect", {}, ["data.npz"])
    call = TABLE[1].call(StageFiles(tmp_path, TABLE), {"rate": 2}, round="3")
    assert call == StageCall("fit", {"data": "hash of collect", "round": "3"}, {"rate": 2})


def test_what_is_recorded_does_not_change_the_digest_and_everything_else_does(tmp_path):
    manifest = Manifest("a", {"x": "1"}, {"y": 2}, {"z": "3"}, {"n": 4}, {"host": "one"})
    assert manifest._replace(recorded={"host": "two"}).digest == manifest.digest
    changes = {"stage": "b", "inputs": {}, "settings": {}, "outputs": {}, "facts": {}}
    others = [manifest._replace(**{name: value}) for name, value in changes.items()]
    assert len({manifest.digest, *(other.digest for other in others)}) == 6
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest


def test_a_manifest_of_another_format_or_with_another_number_is_refused(tmp_path):
    write_manifest(tmp_path, Manifest("a", {}, {}, {}, {"n": 4}, {}))
    path = tmp_path / FILE
    body = json.loads(path.read_text())["body"]
    path.write_text(path.read_text().replace('"n": 4', '"n": 5'))
    with pytest.raises(CheckpointError, match="changed after it had been written"):
        read_manifest(tmp_path)
    path.write_text(signed_text(body | {"format": 2}))
    with pytest.raises(CheckpointError, match="has format 2"):
        read_manifest(tmp_path)
