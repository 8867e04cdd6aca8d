"""Checkpoints written while training continues: of a copy, in order, complete, and with their errors raised."""

import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from support.telemetry import META

from stoix_like.errors import RunError
from stoix_like.runtime.hardware.process_group import OtherProcessFailed, ProcessGroup
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.host_values import RunProgress, run_progress
from stoix_like.runtime.telemetry import Clock, event, open_telemetry, read_rows
from stoix_like.runtime.training.best import BestCheckpoint
from stoix_like.runtime.training.writer import RunFiles, RunWriter

RUN = CheckpointMeta("ppo", "Maze-v0", 0, {}, {})


def saving(update):
    """The arguments of a save beside the state: the update, its progress, and what reports the checkpoint."""
    saved = lambda path: event(Clock(update, 32 * update, 0.5), "saved", path="/".join(path.parts[-2:]))
    return update, RunProgress(0.5, update), saved


def state(update):
    return {"x": jnp.full((4, 3), float(update)), "key": jax.random.key(update)}


class Gated(CheckpointStore):
    """Writes when it is let, as a slow disk does."""

    def __init__(self, folder):
        super().__init__(folder, keep_last_n=2, create=True)
        self.gate = threading.Event()

    def save(self, arrays, meta, **options):
        assert self.gate.wait(60)
        return super().save(arrays, meta, **options)


@pytest.fixture
def files(tmp_path):
    best = BestCheckpoint(CheckpointStore(tmp_path / "checkpoints" / "best", create=True), 1)
    telemetry = open_telemetry(tmp_path, META)
    yield RunFiles(Gated(tmp_path / "checkpoints"), best, telemetry)
    telemetry.close()


def saved_paths(tmp_path):
    return [r["misc/path"] for r in read_rows(tmp_path / "metrics.jsonl")]


def test_a_checkpoint_is_of_the_state_as_it_was_though_it_is_donated_at_once(files, tmp_path):
    writer = RunWriter(ProcessGroup(), files, RUN)
    given = state(1)
    writer.save(given, *saving(1))
    jax.jit(lambda s: s["x"] * 7.0, donate_argnums=0)(given)
    assert given["x"].is_deleted()
    assert writer.collect() is None
    assert saved_paths(tmp_path) == []  # not yet
    files.store.gate.set()
    writer.wait_until_written()
    assert saved_paths(tmp_path) == ["checkpoints/1"]
    template = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0))
    found = files.store.load(template)
    np.testing.assert_array_equal(found["x"], np.ones((4, 3), np.float32))
    assert found["key"].dtype == jax.random.key(0).dtype
    np.testing.assert_array_equal(jax.random.key_data(found["key"]), jax.random.key_data(jax.random.key(1)))


def test_a_second_checkpoint_waits_for_the_first(files, tmp_path):
    writer = RunWriter(ProcessGroup(), files, RUN)
    writer.save(state(1), *saving(1))
    threading.Timer(0.2, files.store.gate.set).start()
    writer.save(state(2), *saving(2))
    assert files.store.updates()[0] == 1
    writer.wait_until_written()
    assert saved_paths(tmp_path) == ["checkpoints/1", "checkpoints/2"]
    assert writer.last_checkpoint() == files.store.folder / "2"


def test_a_checkpoint_that_cannot_be_written_is_told_and_the_one_before_stays(files, tmp_path):
    writer = RunWriter(ProcessGroup(), files, RUN)
    files.store.gate.set()
    writer.save(state(2), *saving(2))
    writer.save(state(1), *saving(1))  # of an earlier update than there is
    assert writer.last_checkpoint() == files.store.folder / "2"
    writer.wait_until_written()
    writer.save(state(3), *saving(3))  # after an error nothing more is written: a checkpoint needs its metrics
    writer.write([event(Clock(3, 96, 0.5), "later")])
    error = writer.collect()
    assert isinstance(error, RunError)
    assert "checkpoint 1 was not written" in error.what
    assert writer.collect() is None  # it is passed on once
    assert writer.how_to_continue() == ""  # its own hint says so
    writer.save(state(4), *saving(4))
    assert writer.last_checkpoint() == files.store.folder / "2"  # also what an evaluation saves when it fails
    writer.log_failure(event(Clock(3, 96, 0.5), "failed"))
    assert [row["misc/event"] for row in read_rows(tmp_path / "metrics.jsonl")] == ["saved", "failed"]
    assert files.store.updates() == [2]


@pytest.mark.parametrize("group", [ProcessGroup(), ProcessGroup(0, 2)], ids=["alone", "of_two"])
def test_a_run_that_ends_by_an_error_waits_for_its_checkpoint_and_says_if_it_failed(group, files, tmp_path, capsys):
    writer = RunWriter(group, files, RUN)
    writer.save(state(2), *saving(2))
    threading.Timer(0.2, files.store.gate.set).start()
    writer.close()
    assert (saved_paths(tmp_path), capsys.readouterr().err) == (["checkpoints/2"], "")
    failing = RunWriter(group, files, RUN)
    failing.save(state(1), *saving(1))
    failing.close()
    assert "warning: checkpoint 1 was not written" in capsys.readouterr().err


def test_what_the_host_notes_waits_and_a_checkpoint_at_once_is_there_when_it_returns(files, tmp_path):
    writer = RunWriter(ProcessGroup(), files, RUN)
    writer.save(state(1), *saving(1))
    threading.Timer(0.2, files.store.gate.set).start()
    writer.rewrite_progress(1, RunProgress(2.0, evaluated_at=7))
    assert run_progress(files.store.load_meta()) == RunProgress(2.0, 7)
    writer.save(state(2), *saving(2), at_once=True)
    assert saved_paths(tmp_path) == ["checkpoints/1", "checkpoints/2"]


def test_the_best_that_a_checkpoint_falls_back_to_stays_until_a_later_one_is_whole(files, tmp_path):
    writer, folder = RunWriter(ProcessGroup(), files, RUN), tmp_path / "checkpoints" / "best"
    kept = lambda: sorted(int(path.name) for path in folder.iterdir())

    def update(update, score):
        writer.update_best({"w": jnp.ones(2)}, np.array([score]), update)

    update(1, 0.1)
    update(2, 0.5)
    writer.save(state(3), *saving(3))
    update(4, 0.9)  # while it is being written
    files.store.gate.set()
    writer.wait_until_written()
    assert kept() == [2, 4]  # a run killed now goes on from 3, and its best so far is 2
    writer.save(state(5), *saving(5))
    writer.wait_until_written()
    assert kept() == [2, 4]  # a person who finds 5 damaged moves it away, and goes on from 3
    writer.save(state(6), *saving(6))
    writer.wait_until_written()
    assert kept() == [4]


def test_a_better_score_of_the_same_update_takes_its_place(tmp_path):
    """As of a checkpoint that is evaluated again, on other levels or with the rounding of another device."""
    best = BestCheckpoint(CheckpointStore(tmp_path / "best", create=True), 1)
    for value in (1.0, 2.0):
        assert best.update({"w": jnp.full(2, value)}, np.array([value]), RUN._replace(update=4))
    assert not best.update({"w": jnp.zeros(2)}, np.array([2.0]), RUN._replace(update=4))
    store = CheckpointStore(tmp_path / "best")
    assert (store.updates(), store.load_meta().host["scores"]) == ([4], [2.0])
    again = BestCheckpoint(CheckpointStore(tmp_path / "best", create=True), 1)
    assert again.restore({"w": jax.ShapeDtypeStruct((2,), jnp.float32)}, 4)
    assert again.scores == [2.0]
    assert list((tmp_path / "best").iterdir()) == [tmp_path / "best" / "4"]


def test_one_process_alone_sends_nothing_and_others_of_a_group_write_nothing(tmp_path):
    writer = RunWriter(ProcessGroup(), None, RUN)
    writer.write([event(Clock(1, 32, 0.5), "any")])
    writer.save(state(1), *saving(1))
    writer.update_best({}, np.ones(1), 1)
    writer.rewrite_progress(1, RunProgress())
    writer.wait_until_written()
    assert (writer.last_checkpoint(), writer.collect()) == (None, None)
    assert list(Path(tmp_path).iterdir()) == []
    group = ProcessGroup()
    assert group.is_primary
    assert group.broadcast_object(lambda: {"a": 1}) == {"a": 1}
    assert group.run_on_primary(lambda: "x") == "x"
    assert group.sync(5, True) == (5, True)
    copied = group.fetch_to_host(state(3))
    assert isinstance(copied["x"], np.ndarray)
    np.testing.assert_array_equal(copied["key"], jax.random.key_data(jax.random.key(3)))
    with pytest.raises(RunError, match="the disk is full"):
        group.sync(error=RunError("the disk is full", "free some space"))


def test_what_fails_in_one_process_of_several_is_raised_where_all_meet(monkeypatch):
    """The other one answers (length 7, whether it stops, whether it failed)."""
    other, sent = np.array([7, 0, 0], np.int32), []

    def all_gather(own):
        sent.append(own.tolist())
        return np.stack([own, other])

    monkeypatch.setattr(multihost_utils, "process_allgather", all_gather)
    group = ProcessGroup(0, 2)
    with pytest.raises(OSError, match="the disk is full"):
        group.sync(3, error=OSError("the disk is full"))
    assert sent == [[3, 0, 1]]  # the other one hears of it
    assert group.sync(3, False) == (3, False)
    other[1] = True
    assert group.sync(3, False) == (3, True)
    other[2] = True
    with pytest.raises(OtherProcessFailed, match="process 1 ended the run"):
        group.sync()
    with pytest.raises(RunError, match="both have failed"):  # its own error says more
        group.sync(error=RunError("both have failed", ""))
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda own: np.stack([other, own]))
    other[1:] = 0
    assert ProcessGroup(1, 2).sync(3, False) == (7, False)  # the length is that of process 0
