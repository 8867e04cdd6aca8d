"""Whole states on disk: what is saved comes back bit for bit, and what is damaged never does."""

import contextlib
import errno
import gc
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_same_bits, refused
from support.marks import full
from support.paths import contents

from stoix_like.envs.registry import make as make_env
from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.runs import arrays, checkpoint
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.storage import digests, os_errors, signed_json
from stoix_like.runtime.training.best import BestCheckpoint

CONFIG = {"environment": {"num_envs": 64, "kwargs": {"num_rows": 5}}, "architecture": {"seed": 0}}


def _arrays(seed=0):
    """One leaf of every type that a state holds."""
    keys = jax.random.split(jax.random.key(seed), 3)
    return {
        "params": {"kernel": jax.random.normal(keys[0], (64, 16)), "bias": jnp.arange(16.0) + seed},
        "half": jax.random.normal(keys[1], (5,)).astype(jnp.bfloat16),
        "key": keys[2],
        "keys": keys,
        "words": jnp.array([0, 2**32 - 1], jnp.uint32),
        "flags": jnp.array([True, False, True]),
        "small": jnp.array([-128, 127], jnp.int8),
        "step": jnp.int32(seed),
        "extremes": jnp.array([jnp.inf, -jnp.inf, jnp.nan, 1e-45, -0.0]),
    }


def _template(arrays):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)


def _meta(update=1, **host):
    return CheckpointMeta("ppo", "Maze-v0", update, CONFIG, host)


def _save(store, update):
    return store.save({"step": jnp.int32(update)}, _meta(update))


@pytest.fixture
def make_store(tmp_path):
    """Opens stores in one folder."""
    return lambda folder="checkpoints", **options: CheckpointStore(tmp_path / folder, **options)


@pytest.fixture(scope="module")
def saved_folder(tmp_path_factory):
    """A folder with one checkpoint, of update 3. Copy it before damaging it."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    store = CheckpointStore(folder, create=True)
    store.save(_arrays(3), _meta(3, elapsed_seconds=1.25))
    return folder


@pytest.fixture
def old_folder(saved_folder, tmp_path):
    """A copy of it, from before meta.json listed the shapes."""
    folder = Path(shutil.copytree(saved_folder, tmp_path / "old" / "checkpoints"))
    body = digests.read_meta(folder / "3")
    (folder / "3" / "meta.json").write_text(signed_json.signed_text({k: v for k, v in body.items() if k != "shapes"}))
    return folder


def test_everything_comes_back_bit_for_bit_of_several_checkpoints_told_apart(make_store):
    arrays = _arrays()
    path = make_store(create=True).save(arrays, _meta(7, elapsed_seconds=1.5))
    assert path.name == "7"
    store = make_store()
    assert store.updates() == [7]
    assert store.load_meta() == _meta(7, elapsed_seconds=1.5)
    assert_same_bits(store.load(_template(arrays)), arrays)
    assert_same_bits(store.load_part("params", _template(arrays["params"])), arrays["params"])
    store = make_store("several", create=True)
    for update in (2, 10):
        store.save(_arrays(update), _meta(update))
    assert store.updates() == [2, 10]  # by number, not by name
    template = _template(_arrays())
    assert_same_bits(store.load(template), _arrays(10))
    assert_same_bits(store.load(template, 2), _arrays(2))
    assert (store.load_meta().update, store.load_meta(2).update) == (10, 2)


@chex.dataclass(frozen=True)
class Container:
    """A state as Jumanji's BinPack has one: a mapping, as chex makes it, with fields that mappings have as methods."""

    items: Any
    values: Any
    ems: Any


class Whole(NamedTuple):
    params: Any
    env_state: Any
    replay: Any


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("replay", [None, jnp.ones((2, 3))], ids=["left out", "stored"])
def test_the_state_of_an_environment_comes_back_whatever_its_fields_are_called(make_store, on_host, replay):
    items = Container(items=jnp.arange(3), values=jnp.ones(2), ems=jnp.zeros((2, 2)))
    state = Whole({"w": jnp.ones(4)}, Container(items=items, values=jnp.bool_(True), ems=()), replay)
    make_store(create=True).save(state, _meta())
    found = make_store().load(_template(state), on_host=on_host)
    assert_same_bits(found, state)
    assert isinstance(found.env_state.items, Container)
    assert (found.replay is None) == (replay is None)
    assert_same_bits(make_store().load_part("params", _template(state.params)), state.params)


@pytest.mark.full
@pytest.mark.parametrize("task_id", ["BinPack-v2", full("BinPack-v0"), full("Maze-v0"), full("Snake-v1")])
def test_the_states_of_shipped_tasks_come_back(make_store, task_id):
    state, timestep = jax.jit(jax.vmap(make_env(task_id).reset))(jax.random.split(jax.random.key(0), 2))
    whole = Whole({"w": jnp.ones(4)}, state, timestep.observation)
    make_store(create=True).save(whole, _meta())
    assert_same_bits(make_store().load(_template(whole)), whole)


@pytest.mark.parametrize(("keep", "kept"), [(None, [1, 2, 3]), (1, [3]), (2, [2, 3])])
def test_keep_last_n(make_store, keep, kept):
    store = make_store(create=True, keep_last_n=keep)
    for update in (1, 2, 3):
        _save(store, update)
    assert store.updates() == kept
    assert make_store().updates() == kept


def test_other_shapes_are_refused_and_the_first_is_named(make_store):
    arrays = _arrays()
    store = make_store(create=True)
    path = store.save(arrays, _meta())
    narrow = _template(arrays | {"params": arrays["params"] | {"kernel": jnp.zeros((64, 8))}})
    what = f"checkpoint {path} does not fit: params/kernel is stored as (64, 16), this run has (64, 8)"
    with refused(CheckpointError, what):
        store.load(narrow)
    with refused(CheckpointError, what):
        store.load_part("params", narrow["params"])
    with pytest.raises(CheckpointError, match="more is not stored"):
        store.load(_template(arrays | {"more": jnp.zeros(2)}))
    with pytest.raises(CheckpointError, match="step is stored, this run has none"):
        store.load(_template({name: value for name, value in arrays.items() if name != "step"}))


def test_the_shapes_that_meta_json_lists_are_those_that_orbax_finds_and_orbax_is_not_asked(
    saved_folder, old_folder, monkeypatch
):
    listed = digests.read_meta(saved_folder / "3")["shapes"]
    assert {name: tuple(shape) for name, shape in listed.items()} == arrays.stored_shapes(saved_folder / "3")
    assert listed["params/kernel"] == [64, 16]
    assert listed["keys"] == [3, 2]  # of the key data
    assert_same_bits(CheckpointStore(old_folder).load(_template(_arrays())), _arrays(3))
    narrow = _template(_arrays() | {"step": jnp.zeros(2)})
    monkeypatch.setattr(arrays, "stored_shapes", None)  # each call of it keeps memory for ever
    assert_same_bits(CheckpointStore(saved_folder).load(_template(_arrays())), _arrays(3))
    with pytest.raises(CheckpointError, match=r"step is stored as \(\), this run has \(2,\)"):
        CheckpointStore(saved_folder).load(narrow)


def test_the_format_is_told_from_the_files(make_store, caplog):
    for update, use_ocdbt in ((1, True), (2, False), (3, True)):
        path = make_store(create=True, use_ocdbt=use_ocdbt).save(_arrays(update), _meta(update))
        assert ([file.name for file in path.glob("state/*.ocdbt")] == ["manifest.ocdbt"]) == use_ocdbt
        assert path.joinpath("state", "params.kernel", ".zarray").is_file() != use_ocdbt
    assert not caplog.records
    for update in (1, 2, 3):
        expected = _arrays(update)
        assert_same_bits(make_store().load(_template(expected), update), expected)
        assert_same_bits(make_store().load_part("params", _template(expected["params"]), update), expected["params"])


@pytest.mark.full
def test_without_ocdbt_saving_and_reading_keep_no_memory(make_store):
    store = make_store(create=True, keep_last_n=1, use_ocdbt=False)
    many = {f"leaf_{i}": jnp.ones(i + 1) for i in range(40)}

    def save_and_read(updates):
        for update in updates:
            store.save(many, _meta(update))
            jax.block_until_ready(store.load(_template(many)))
        gc.collect()
        return sys.getallocatedblocks()

    blocks = [save_and_read(range(first, first + 5)) for first in (1, 6, 11)]
    assert min(np.diff(blocks)) / 5 < 2 * len(many)  # with it, 8 of each leaf stay


def test_what_is_not_there_is_named_and_another_schema_refused(make_store, tmp_path, monkeypatch):
    with refused(CheckpointError, f"no checkpoint in {tmp_path / 'nowhere'}"):
        make_store("nowhere")
    assert not (tmp_path / "nowhere").exists()
    store = make_store(create=True)
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        store.load_meta()
    for update in (1, 2):
        _save(store, update)
    with refused(CheckpointError, f"no checkpoint of update 3 in {store.folder}", "there are: 1, 2"):
        store.load_meta(3)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "SCHEMA", checkpoint.SCHEMA + 1)
        _save(make_store("other", create=True), 1)
    with pytest.raises(CheckpointError, match="has another schema than this version reads"):
        make_store("other").load_meta()


def test_a_save_that_was_killed_is_no_checkpoint(make_store, saved_folder, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(saved_folder, folder)
    half = folder / "4.orbax-checkpoint-tmp-0"
    shutil.copytree(folder / "3", half)
    assert make_store().updates() == [3]
    assert half.exists()  # a reader removes nothing
    assert make_store(create=True).updates() == [3]
    assert not half.exists()


def test_a_folder_that_cannot_be_written_is_a_plain_error_whoever_tells_it(make_store, tmp_path):
    store = make_store(create=True)
    _save(store, 1)
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    (tmp_path / "checkpoints").write_text("a file in its place")
    with refused(
        RunError, f"cannot write the checkpoint in {store.folder}: Not a directory", "a part of the path is no folder"
    ):
        _save(store, 2)
    assert (tmp_path / "moved" / "1").is_dir()
    text = "NOT_FOUND: Error writing 'manifest.ocdbt': Failed to open [os_error_code='20'] [tensorstore_spec='{...}']"
    assert os_errors.words_of(ValueError(text)) == "Not a directory"
    assert os_errors.words_of(OSError(28, "No space left on device", "x")) == "No space left on device"
    assert os_errors.words_of(ValueError("another")) == "another"


def test_a_checkpoint_is_on_the_disk_before_an_older_one_is_removed(make_store, tmp_path, monkeypatch):
    """Or a power failure could leave none of them whole."""
    synced, sync = [], os.fsync

    def noting(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path.relative_to(tmp_path).as_posix(), store.updates()))
        sync(descriptor)

    store = make_store(create=True, keep_last_n=1)
    _save(store, 1)
    monkeypatch.setattr(os, "fsync", noting)
    path = _save(store, 2)
    unfinished = "checkpoints/2.orbax-checkpoint-tmp"
    within = {f"{unfinished}/{found.relative_to(path).as_posix()}" for found in path.rglob("*")}
    assert {name for name, updates in synced if updates == [1]} == {unfinished, *within}
    assert synced[-1] == ("checkpoints", [1, 2])
    assert store.updates() == [2]


@pytest.mark.parametrize("refused", ["folder", "file"])
def test_only_of_folders_may_a_file_system_refuse_to_be_synced(make_store, monkeypatch, refused):
    sync = os.fsync

    def refusing(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").is_dir() == (refused == "folder"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    store = make_store(create=True)
    monkeypatch.setattr(os, "fsync", refusing)
    if refused == "folder":
        _save(store, 1)
        assert store.updates() == [1]
        return
    with pytest.raises(RunError, match="Invalid argument"):
        _save(store, 1)
    assert store.updates() == []


def test_a_folder_that_goes_while_it_is_written_is_a_plain_error(make_store, tmp_path, monkeypatch):
    """Whatever is met first then: tensorstore reports a missing file, orbax a missing folder."""

    class Writer:
        def save(self, path, args):
            (tmp_path / "checkpoints").rename(tmp_path / "moved")
            raise ValueError('NOT_FOUND: Error writing "step/0" in OCDBT database: Error reading Byte range [0, 842)')

    store = make_store(create=True)
    monkeypatch.setattr(arrays, "_checkpointer", lambda *_, **__: contextlib.nullcontext(Writer()))
    with refused(
        RunError,
        f"cannot write the checkpoint in {store.folder}: No such file or directory",
        "see that it is there, and its folder too",
    ):
        _save(store, 2)


def _read(store, part):
    """All that the store's checkpoint of update 3 holds, or its parameters."""
    template = _template(_arrays(3))
    return store.load(template) if part == "all" else store.load_part("params", template["params"])


def _damages(content):
    """(name, damaged content or None for a missing file) of one file."""
    yield "missing", None
    yield "empty", b""
    yield "half", content[: len(content) // 2]
    for place in np.linspace(0, len(content) - 1, 8).astype(int) if content else ():
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        yield f"bit flipped in byte {place}", bytes(flipped)


@pytest.mark.parametrize("part", ["all", full("params")])
def test_damage_is_refused_and_never_loaded(saved_folder, tmp_path, part, capfd):
    """Every file in turn is removed, emptied, cut, and has single bits flipped. What loads must be what was saved."""
    expected = _arrays(3) if part == "all" else _arrays(3)["params"]
    num_refused, wrong = 0, []
    for file, content in sorted(contents(saved_folder).items()):
        for name, damaged in _damages(content):
            shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
            folder = Path(shutil.copytree(saved_folder, tmp_path / "damaged"))
            (folder / file).unlink()
            if damaged is not None:
                (folder / file).write_bytes(damaged)
            store = CheckpointStore(folder)
            try:
                meta = store.load_meta()
                loaded = _read(store, part)
            except CheckpointError:
                num_refused += 1
                continue
            try:
                assert_same_bits(loaded, expected)
                assert meta == _meta(3, elapsed_seconds=1.25)
            except AssertionError:
                wrong.append(f"{file}: {name}")
    assert wrong == []
    assert num_refused > 0
    assert capfd.readouterr().err == ""  # orbax's own tracebacks are no answer to a user


@pytest.mark.parametrize("part", ["all", "params"])
@pytest.mark.parametrize("method", ["restore", "metadata"])
@pytest.mark.parametrize(
    ("failure", "kind", "what"),
    [
        (KeyError("new_field"), CheckpointError, "cannot be restored by this orbax: 'new_field'"),
        (ValueError("no such codec\nmore"), CheckpointError, "cannot be restored by this orbax: no such codec"),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nmore"),
            RunError,
            "does not fit into memory: RESOURCE_EXHAUSTED: Out of memory",
        ),
    ],
    ids=["key", "value", "memory"],
)
def test_what_is_as_it_was_written_is_not_called_damaged(old_folder, monkeypatch, part, method, failure, kind, what):
    def fail(*_args, **_kwargs):
        raise failure

    monkeypatch.setattr(arrays.ocp.Checkpointer, method, fail)
    with refused(kind, f"checkpoint {old_folder / '3'} {what}") as caught:
        _read(CheckpointStore(old_folder), part)
    assert "remove" not in caught.value.hint
    assert "damaged" not in caught.value.hint


@pytest.mark.parametrize("when", ["before", "half-way"])
@pytest.mark.parametrize("read", ["meta", "all", "params"])
def test_a_checkpoint_that_its_run_removes_while_it_is_read(saved_folder, tmp_path, monkeypatch, read, when):
    folder = Path(shutil.copytree(saved_folder, tmp_path / "checkpoints"))
    step = "read_meta" if when == "before" or read == "meta" else "file_digests"
    original = getattr(digests, step)

    def removing(path):
        CheckpointStore(folder).remove(3)
        return original(path)

    monkeypatch.setattr(digests, step, removing)
    store = CheckpointStore(folder)
    what = f"checkpoint {folder / '3'} has just been removed by its run"
    with refused(CheckpointError, what, "try again: the run has written a newer one"):
        store.load_meta() if read == "meta" else _read(store, read)


def _params(*values):
    return {"w": jnp.asarray(values, jnp.float32)}


def _keeper(tmp_path, num_seeds=1, level_set_id=None):
    return BestCheckpoint(CheckpointStore(tmp_path / "best", create=True), num_seeds, level_set_id)


def _stored_best(tmp_path, template):
    store = CheckpointStore(tmp_path / "best")
    return store.load_meta(), np.asarray(store.load_part("params", _template(template))["w"])


def test_best_keeps_what_scored_best_of_each_seed_the_first_of_equals_and_what_is_donated(tmp_path):
    keeper = _keeper(tmp_path)
    offers = [(2, 0.5, True), (4, 0.25, False), (6, 0.5, False), (8, 0.75, True), (10, np.nan, False)]
    assert [keeper.update(_params(u), np.array([score]), _meta(u)) for u, score, _ in offers] == [o for *_, o in offers]
    meta, params = _stored_best(tmp_path, _params(0))
    assert (meta.update, meta.host) == (8, {"scores": [0.75], "updates": [8], "scored_on": {}})
    np.testing.assert_array_equal(params, [8.0])
    keeper = _keeper(tmp_path / "two", num_seeds=2)
    keeper.update(_params([1, 1], [2, 2]), np.array([5.0, 5.0]), _meta(1))
    keeper.update(_params([3, 3], [4, 4]), np.array([6.0, 4.0]), _meta(2))
    meta, params = _stored_best(tmp_path / "two", _params([0, 0], [0, 0]))
    assert meta.host == {"scores": [6.0, 5.0], "updates": [2, 1], "scored_on": {}}
    np.testing.assert_array_equal(params, [[3, 3], [2, 2]])
    keeper = _keeper(tmp_path / "donated")
    params = _params(1.0, 2.0)
    keeper.update(params, np.array([1.0]), _meta(1))
    params["w"].delete()
    assert not keeper.update(_params(3.0, 4.0), np.array([0.5]), _meta(2))
    np.testing.assert_array_equal(_stored_best(tmp_path / "donated", _params(0.0, 0.0))[1], [1.0, 2.0])


def _offer_all(keeper, offers):
    for update, scores, values in offers:
        keeper.update(_params(*values), np.array(scores), _meta(update))


def test_best_of_an_interrupted_run_equals_the_uninterrupted_one(tmp_path):
    """Killed after update 20, whose evaluation was the best, with the last checkpoint at 10: seed 1 was best at 5."""
    offers = [(5, [1.0, 5.0], [51, 52]), (10, [0.0, 0.0], [101, 102]), (15, [2.0, 3.0], [151, 152])]
    offers += [(20, [9.0, 1.0], [201, 202]), (25, [0.0, 4.0], [251, 252])]
    whole = _keeper(tmp_path / "whole", 2)
    _offer_all(whole, offers)
    killed = _keeper(tmp_path / "killed", 2)
    _offer_all(killed, offers[:4])
    resumed = _keeper(tmp_path / "killed", 2)
    resumed.restore(_template(_params(0, 0)), 10)
    assert (resumed.scores.tolist(), resumed.updates.tolist()) == ([1.0, 5.0], [5, 5])
    _offer_all(resumed, offers[2:])
    bests = [_stored_best(tmp_path / name, _params(0, 0)) for name in ("whole", "killed")]
    assert bests[0][0] == bests[1][0]
    for _, params in bests:
        np.testing.assert_array_equal(params, [201.0, 52.0])


def test_best_of_a_future_that_was_given_up_is_forgotten(tmp_path):
    """Continued from update 10 with other rates, a run must not keep the best of the future it left."""
    killed = _keeper(tmp_path)
    _offer_all(killed, [(5, [1.0], [5]), (20, [9.0], [20])])
    resumed = _keeper(tmp_path)
    resumed.restore(_template(_params(0)), 10)
    _offer_all(resumed, [(15, [2.0], [150]), (20, [3.0], [200])])
    meta, params = _stored_best(tmp_path, _params(0))
    assert (meta.update, meta.host["scores"]) == (20, [3.0])
    np.testing.assert_array_equal(params, [200.0])


def test_best_scored_on_other_levels_is_not_compared(tmp_path):
    """A lower score on new levels takes the place of a higher one on old levels, which stays until then."""
    _offer_all(_keeper(tmp_path, level_set_id={"levels": "fresh"}), [(5, [9.0], [50])])
    resumed = _keeper(tmp_path, level_set_id={"levels": "maze-8"})
    assert not resumed.restore(_template(_params(0)), 10)
    assert _stored_best(tmp_path, _params(0))[0].update == 5
    _offer_all(resumed, [(15, [1.0], [150])])
    meta, params = _stored_best(tmp_path, _params(0))
    assert (meta.update, meta.host["scores"], meta.host["scored_on"]) == (15, [1.0], {"levels": "maze-8"})
    np.testing.assert_array_equal(params, [150.0])
    again = _keeper(tmp_path, level_set_id={"levels": "maze-8"})
    assert again.restore(_template(_params(0)), 20)
    assert again.scores.tolist() == [1.0]


def test_an_old_checkpoint_that_cannot_be_removed_ends_nothing(make_store, monkeypatch):
    """A reader on a network file system holds its files open."""
    store = make_store(create=True, keep_last_n=1)
    _save(store, 1)

    def refuse(*_, **__):
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr(checkpoint.shutil, "rmtree", lambda path, ignore_errors=False: ignore_errors or refuse())
    _save(store, 2)
    assert store.updates() == [2]
    assert store.load_meta().update == 2


@pytest.mark.parametrize("use_ocdbt", [True, full(False)])
@pytest.mark.parametrize(
    "name", ["plain [x]", "a[!b]", "a\\b", "a*?", "gs:/", "%41#", "line\nbreak", "\udcff", "{x}$HOME;'\"|&"]
)
def test_a_folder_of_any_name_holds_checkpoints(tmp_path, name, use_ocdbt):
    """Orbax takes brackets for a pattern and loses the checkpoint; tensorstore cannot name a backslash."""
    folder = tmp_path / name / "checkpoints"
    CheckpointStore(folder, create=True, use_ocdbt=use_ocdbt).save(_arrays(2), _meta(2))
    assert_same_bits(CheckpointStore(folder).load(_template(_arrays())), _arrays(2))
    assert arrays.stored_shapes(folder / "2")["params/kernel"] == (64, 16)


@pytest.mark.parametrize(
    ("absent", "use_ocdbt"),
    [("_METADATA", True), ("manifest.ocdbt", True), ("_METADATA", False), ("step/.zarray", False)],
)
def test_a_save_that_leaves_out_a_file_is_an_error_at_once(make_store, monkeypatch, absent, use_ocdbt):
    store = make_store(create=True, use_ocdbt=use_ocdbt)
    _save(store, 1)
    whole = arrays.ocp.Checkpointer.save

    def save(self, directory, *args, **kwargs):
        whole(self, directory, *args, **kwargs)
        (directory / absent).unlink()

    monkeypatch.setattr(arrays.ocp.Checkpointer, "save", save)
    with pytest.raises(RunError, match=r"was not written: orbax has left out (_METADATA|manifest.ocdbt|an array)"):
        _save(store, 2)
    assert store.updates() == [1]
