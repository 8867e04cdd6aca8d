"""TensorBoard's event files and W&B's offline runs, read back as their own programs read them."""

import json
import struct
import time

import pytest
from support import telemetry
from support.telemetry import report, send

from stoix_like.runtime.telemetry import JsonlSink
from stoix_like.runtime.telemetry.tensorboard_sink import TensorboardSink
from stoix_like.runtime.telemetry.wandb_sink import WandbSink

META = telemetry.run_meta(num_updates=3)


def _events(path):
    """TFRecords of Event messages: length, its checksum, the message, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield Event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length


def test_tensorboard_has_the_scalars_and_a_resumed_run_hides_what_came_after_its_checkpoint(tmp_path):
    send(TensorboardSink(), tmp_path / "run", [1, 2], META)
    (path,) = (tmp_path / "run" / "tensorboard").iterdir()
    values = [(event.step, value) for event in _events(path) for value in event.summary.value]
    assert [(step, v.tag, v.simple_value) for step, v in values if v.HasField("simple_value")] == [
        (1024, "trainer/loss", 0.25),
        (2048, "trainer/loss", 0.5),
    ]
    (text,) = [value.tensor.string_val[0].decode() for _, value in values if value.HasField("tensor")]
    assert "| num_envs | 64 |" in text
    before = set((tmp_path / "run" / "tensorboard").iterdir())
    send(TensorboardSink(), tmp_path / "run", [2, 3], META._replace(resumed_update=1))
    (path,) = set((tmp_path / "run" / "tensorboard").iterdir()) - before
    events = list(_events(path))
    starts = [event.step for event in events if event.WhichOneof("what") == "session_log"]
    assert starts == [1025]  # TensorBoard drops older events from this step on
    assert [event.step for event in events if event.summary.value] == [2048, 3072]


def test_tensorboard_shows_what_is_written_before_the_run_ends(tmp_path):
    sink = TensorboardSink()
    sink.open(tmp_path, META)
    sink.write([report(1, loss=1.0)])
    (path,) = (tmp_path / "tensorboard").iterdir()
    deadline = time.monotonic() + 20.0
    while not any(value.tag == "trainer/loss" for event in _events(path) for value in event.summary.value):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    sink.close()


def test_wandb_writes_an_offline_run_that_it_can_read(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    send(WandbSink(), tmp_path / "run-1", [1, 2, 3], META)
    (folder,) = (tmp_path / "run-1" / "wandb").glob("offline-run-*")
    (path,) = folder.glob("*.wandb")
    deadline = time.monotonic() + 20.0  # wandb's own process writes it
    while len(_wandb_records(path)[0]) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    history, config = _wandb_records(path)
    steps = [(one["_step"], one["trainer/loss"]) for one in history]
    assert steps == [("1024", "0.25"), ("2048", "0.5"), ("3072", "0.75")]
    assert "trainer/broken" not in history[0]
    assert json.loads(config["environment"])["num_envs"] == 64


def test_a_wandb_run_goes_on_under_its_id_and_a_new_one_has_its_own(tmp_path, monkeypatch):
    """Two sweeps have a trial-0000 each, and a deleted run's name may be used again: names are no ids."""
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    ids = {}
    for place, meta in (("a", META), ("a", META._replace(resumed_update=1)), ("b", META)):
        (tmp_path / place).mkdir(exist_ok=True)
        send(WandbSink(), tmp_path / place / "trial-0000", [1], meta)
        noted = json.loads((tmp_path / place / "trial-0000" / "wandb.json").read_text())["run_id"]
        ids.setdefault(place, []).append(noted)
        assert list((tmp_path / place / "trial-0000" / "wandb").glob(f"offline-run-*-{noted}"))
    assert ids["a"][0] == ids["a"][1] != ids["b"][0]
    assert all(each.startswith("trial-0000-") for each in [*ids["a"], *ids["b"]])


def _wandb_records(path):
    """LevelDB's log format: blocks of 32 KiB of pieces, each with a checksum, length and kind (whole, first ...)."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, message = path.read_bytes(), 7, b""  # behind the head of the file
    history, config = [], {}
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        message += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind not in (1, 4):  # the message goes on
            continue
        record, message = Record.FromString(message), b""
        if record.WhichOneof("record_type") == "history":
            history.append({"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item})
        elif record.WhichOneof("record_type") == "run":
            config |= {item.key: item.value_json.replace(" ", "") for item in record.run.config.update}
    return history, config


def test_writing_to_a_sink_that_is_not_open_is_our_bug():
    for sink in (TensorboardSink(), WandbSink(), JsonlSink()):
        with pytest.raises(ValueError, match="not open"):
            sink.write([report(1, loss=1.0)])
