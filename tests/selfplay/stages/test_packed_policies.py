"""Stages of a game with many actions, whose shards and windows have policies over the legal ones."""

import re

import jax
import numpy as np
import pytest
from support.pipelines import small_pipeline, write_shard

from stoix_like.algorithms.alphazero.packing import PackedObservation
from stoix_like.envs.boards import registry
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.selfplay.files.policies import OVER_ALL, as_written, policy_problems
from stoix_like.selfplay.files.shards import check_shard, game_ids, text_of
from stoix_like.selfplay.files.verify_games import rule_problem
from stoix_like.selfplay.iterations.begin import IterationOptions
from stoix_like.selfplay.iterations.steps import run_iteration
from stoix_like.selfplay.stages import export

GAME = make_tic_tac_toe()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A pipeline of tic-tac-toe with places for 9 legal actions, after an iteration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.MAKERS, "tic_tac_toe", lambda: GAME._replace(max_legal=9))
        pipeline = small_pipeline(tmp_path_factory.mktemp("packed"))
        return pipeline, run_iteration(pipeline, IterationOptions(skip_evaluation=True))


@pytest.fixture
def arrays(finished):
    pipeline, _ = finished
    return read_arrays(pipeline.layout.stage(1, "selfplay") / "shard_0000.npz")


def over_all(arrays):
    """The same games as the format before wrote them."""
    rows = np.arange(len(arrays["policy"]))[:, None]
    legal, policy = np.zeros((len(rows), 10), bool), np.zeros((len(rows), 10), np.float32)
    legal[rows, arrays["legal"]] = True  # -1 is the last place
    policy[rows, arrays["legal"]] = arrays["policy"]
    legal, policy = legal[:, :9], policy[:, :9]
    found = arrays | {"legal": legal, "policy": policy / policy.sum(axis=1, keepdims=True)}
    return found | {"text_format": np.array("3"), "game_id": game_ids(found, 3)}


@pytest.mark.full
def test_a_shard_has_policies_over_legal_actions_and_follows_the_rules(finished, arrays):
    pipeline, _ = finished
    assert text_of(arrays, "format") == "4"
    assert (arrays["legal"].dtype, arrays["policy"].dtype) == (np.int16, np.float16)
    check_shard(pipeline.game, arrays, "here")
    assert rule_problem(pipeline.play_moves, pipeline.game, arrays) is None
    with pytest.raises(CheckpointError, match="has format '4', and this version reads 2 and 3"):
        check_shard(GAME, arrays, "here")


@pytest.mark.full
def test_shards_of_the_format_before_are_read(finished, arrays):
    pipeline, _ = finished
    before = over_all(arrays)
    assert {name: before[name].dtype for name in OVER_ALL} == {"legal": bool, "policy": np.float32}
    check_shard(pipeline.game, before, "here")
    assert rule_problem(pipeline.play_moves, pipeline.game, before) is None
    again = as_written(pipeline.game, before)
    np.testing.assert_array_equal(again["legal"], arrays["legal"])
    np.testing.assert_allclose(again["policy"], arrays["policy"], rtol=2e-3, atol=1e-7)


@pytest.mark.full
def test_the_window_is_what_the_replay_keeps_and_is_learned_from(finished):
    pipeline, report = finished
    window = read_arrays(pipeline.layout.stage(1, "export") / export.WINDOW_FILE)
    export.check_window(pipeline, window, "here")
    samples = export.samples_of(pipeline, window)
    assert isinstance(samples.observation, PackedObservation)
    shapes = jax.tree.map(lambda x: (x.shape[1:], x.dtype), samples)
    wanted = jax.tree.map(lambda x: (x.shape[2:], x.dtype), pipeline.state_template.replay.samples)
    assert shapes == wanted
    assert np.isfinite(report.trained.recorded["policy_loss"])


@pytest.mark.full
def test_a_window_takes_in_shards_of_both_formats(finished, tmp_path):
    pipeline, _ = finished
    theirs = write_shard(pipeline, tmp_path / "new.npz", iteration=901)
    write_arrays(tmp_path / "old.npz", over_all(theirs) | {"text_iteration": np.array("902")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.MAKERS, "tic_tac_toe", lambda: GAME._replace(max_legal=9))
        other = small_pipeline(tmp_path / "runs", sync_from=str(tmp_path))
        report = run_iteration(other, IterationOptions(skip_evaluation=True))
    assert report.synced.facts["shards"] == 4
    window = read_arrays(other.layout.stage(1, "export") / export.WINDOW_FILE)
    assert window["legal"].dtype == np.int16


def put(column, value):
    """In the last position, which has fewer than nine legal moves."""

    def change(array):
        found = array.copy()
        found[-1, column] = value
        return found

    return change


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("legal", put(0, 9), "legal actions are no ascending numbers"),
        ("legal", put(0, -2), "legal actions are no ascending numbers"),
        ("legal", lambda a: a[:, ::-1], "legal actions are no ascending numbers"),
        ("policy", lambda a: a * np.float16(0.5), "no distribution over legal moves"),
        ("policy", put(-1, 0.01), "no distribution over legal moves"),
        ("policy", put(0, np.nan), "policy has values that are not finite"),
    ],
)
def test_policies_that_are_none_are_refused(arrays, name, change, reason):
    last = arrays["legal"][-1]
    assert last[0] >= 0 > last[-1]
    problems = list(policy_problems(9, arrays | {name: change(arrays[name])}))
    assert re.search(reason, problems[0])


@pytest.mark.full
def test_legal_actions_that_are_not_those_of_the_moves_are_seen(finished, arrays):
    pipeline, _ = finished
    legal = arrays["legal"].copy()
    row = int(np.argmax((legal >= 0).sum(axis=1) < 8))
    free = next(action for action in range(9) if action not in legal[row])
    legal[row] = [*sorted([*legal[row][legal[row] >= 0], free]), *[-1] * 9][:9]
    found = rule_problem(pipeline.play_moves, pipeline.game, arrays | {"legal": legal})
    assert found == "legal of a position is not that of the moves"
