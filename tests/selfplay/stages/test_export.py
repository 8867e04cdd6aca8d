"""The window: its size by hand, newest games first, each once, split by game, and files that are none."""

import numpy as np
import pytest
from support.pipelines import restored, small_pipeline

from stoix_like.errors import CheckpointError, RunError
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.manifest import Manifest, write_manifest
from stoix_like.selfplay.files import shards
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.iteration_start import IterationStart, SelfPlayer, write_start
from stoix_like.selfplay.files.lost_shards import read_lost
from stoix_like.selfplay.iterations.table import files_of
from stoix_like.selfplay.stages import export
from stoix_like.selfplay.stages.export import is_validated_on, window_size


@pytest.mark.parametrize(
    ("positions", "size"),
    [
        (0, 0),
        (500, 500),
        (1000, 1000),
        # 1000 (1 + 0.4 (16^0.75 - 1) / 0.75) = 1000 (1 + 0.4 * 7 / 0.75)
        (16_000, 4733),
        (10**9, 10_000),  # the capacity
    ],
)
def test_the_size_of_the_window_is_as_by_hand(positions, size):
    assert window_size(positions, 1000, 0.75, 0.4, 10_000) == size


def test_the_window_never_has_more_than_there_is_and_grows_with_its_slope():
    sizes = [window_size(n, 10_000, 0.75, 0.4, 10**9) for n in (10_000, 10_100)]
    assert sizes[1] - sizes[0] == pytest.approx(0.4 * 100, abs=1.0)
    assert window_size(1001, 1000, 1.0, 1.0, 10**9) == 1001
    assert window_size(5000, 1000, 0.75, 0.4, 2000) == 2000


def test_a_game_stays_on_its_side_of_the_split():
    ids = np.random.default_rng(0).integers(0, 2**63, 20_000).astype(np.uint64)
    small, large = is_validated_on(ids, 0.05), is_validated_on(ids, 0.2)
    assert small.mean() == pytest.approx(0.05, abs=0.005)
    assert (large | ~small).all()  # a larger share only adds games
    assert not is_validated_on(ids, 0.0).any()


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return small_pipeline(tmp_path_factory.mktemp("export"))


@pytest.fixture
def pipeline(programs, tmp_path):
    """A pipeline that has done nothing yet."""
    with restored(programs):
        programs.layout = Layout(tmp_path)
        yield programs


def shard(pipeline, iteration, lengths, first_id=0):
    """A shard of games of these lengths, in which every position tells its game; taken in by an iteration of ours.

    It is of another machine, which is far ahead: what counts as new is when this pipeline took it in.
    """
    game = np.repeat(np.arange(len(lengths)), lengths)
    number = len(game)
    arrays = {
        "num_plies": np.array(lengths, np.int16),
        "num_random": np.zeros(len(lengths), np.int16),
        "game_id": np.arange(first_id, first_id + len(lengths)).astype(np.uint64),
        "game": game.astype(np.int32),
        "outcome": np.tile(np.float32([1.0, -1.0]), (len(lengths), 1)),
        "packed_planes": np.zeros((number, 3), np.uint8),
        "legal": np.ones((number, 9), bool),
        "policy": np.full((number, 9), 1.0 / 9.0, np.float32),
        "root_values": np.zeros((number, 2), np.float32),
        "player": (np.arange(number) % 2).astype(np.int8),
        "is_full": np.ones(number, bool),
    }
    texts = {"format": str(shards.FORMATS[-1]), "seed": "0", "iteration": str(900 + iteration), "shard": "0"}
    arrays |= {f"text_{name}": np.array(text) for name, text in (texts | {"player": "p", "engine": "e"}).items()}
    folder = pipeline.layout.store
    name = write_arrays(folder / "x.npz", arrays)[: export.HASH_DIGITS]
    (folder / "x.npz").rename(folder / f"{name}.npz")
    synced = pipeline.layout.stage(iteration, "sync")
    synced.mkdir(parents=True)
    facts = {"added": [[name, len(lengths), number]], "positions": len(list(folder.glob("*.npz"))) * number}
    write_manifest(synced, Manifest("sync", {}, {}, {}, facts, {}))
    return arrays


def listed(pipeline):
    return list(export.stored_shards(pipeline.layout, 99))


def exported(pipeline, folder):
    """The window of the shards that were taken in, written into the folder."""
    synced = Manifest("sync", {}, {}, {}, {"positions": sum(one.num_positions for one in listed(pipeline))}, {})
    return export._export(pipeline, 99, synced, folder)


def test_the_newest_whole_games_come_first_and_each_game_once(pipeline):
    shard(pipeline, 1, [4, 4, 4], first_id=10)
    shard(pipeline, 2, [5, 5, 5], first_id=12)  # its first game is the last one of the other shard
    found = [(one.iteration, one.num_games, one.num_positions) for one in listed(pipeline)]
    assert found == [(2, 3, 15), (1, 3, 12)]

    def games(size):
        found = export._newest_positions(pipeline, 99, size)
        return dict(zip(*np.unique(found["game_id"], return_counts=True), strict=True))

    assert games(1000) == {10: 4, 11: 4, 12: 5, 13: 5, 14: 5}
    assert games(19) == {11: 4, 12: 5, 13: 5, 14: 5}
    assert games(1) == {14: 5}  # one game is always taken
    found = export._newest_positions(pipeline, 99, 1000)
    np.testing.assert_array_equal(found["iteration"], np.repeat([1, 2], [8, 15]))
    assert set(found["outcome"][:, 0].tolist()) == {1.0, -1.0}  # for the mover: of the first player 1, of the second -1


def test_a_store_without_games_or_with_lost_games_alone_is_refused(pipeline, tmp_path):
    pipeline.layout.store.mkdir()
    with pytest.raises(RunError, match="the store has no games to learn from"):
        exported(pipeline, tmp_path / "out")
    arrays = shard(pipeline, 1, [4, 4])
    path = next(pipeline.layout.store.glob("*.npz"))
    write_arrays(path, arrays | {"outcome": -arrays["outcome"]})
    settings = {"skip_selfplay": False, "skip_evaluation": False, "data_path": None}
    write_start(pipeline.layout, 1, IterationStart(SelfPlayer("p", None), settings))
    files = files_of(pipeline.layout, 1)
    files.done("sync").facts["store"] = "s"
    with pytest.raises(RunError, match="all games are lost"):
        export.export_stage(pipeline, files)
    assert read_lost(pipeline.layout).keys() == {path.stem}


@pytest.fixture(scope="module")
def window(programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("window")
    with restored(programs):
        programs.layout = Layout(folder)
        shard(programs, 1, [4, 5, 4])
        exported(programs, folder / "out")
    return read_arrays(folder / "out" / export.WINDOW_FILE)


def test_the_window_of_an_export_passes(programs, window):
    export.check_window(programs, window, "here")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a: a | {"text_kind": np.array("selfplay")}, "its kind is 'selfplay' and should be 'window'"),
        (lambda a: a | {"text_game_name": np.array("othello")}, "its game_name is 'othello'"),
        (lambda a: {n: v for n, v in a.items() if n != "outcome"}, "it has no outcome"),
        (lambda a: a | {"policy": a["policy"][:, :-1]}, "policy is float32"),
        (lambda a: a | {"legal": a["legal"].astype(np.int8)}, "legal is int8"),
        (lambda a: {n: v if v.ndim == 0 else v[:0] for n, v in a.items()}, "it has no positions"),
        (
            lambda a: {n: v if v.ndim == 0 else np.repeat(v, 60, axis=0) for n, v in a.items()},
            "replay_buffer_size is 256",
        ),
        (lambda a: a | {"root_values": a["root_values"] * np.nan}, "root_values has values that are not finite"),
        (lambda a: a | {"root_values": a["root_values"] + np.float32(1e30)}, "root_values has 1e.30, and no value is"),
        (lambda a: a | {"outcome": a["outcome"] * np.float32(2)}, "outcome has 2, and no value is beyond 1"),
        (lambda a: a | {"iteration": a["iteration"] - 2}, "an iteration is below 0"),
        (lambda a: a | {"policy": a["policy"] * 0}, "a policy is no distribution"),
    ],
)
def test_files_that_are_no_windows(programs, window, change, reason):
    with pytest.raises(CheckpointError, match=reason):
        export.check_window(programs, change(window), "there")
