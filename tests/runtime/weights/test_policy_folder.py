"""The files of an exported policy: their content, atomic writes, and why damaged ones are refused."""

import hashlib
import json
import re
import resource
import shutil

import jax
import jumanji
import numpy as np
import pytest
from jumanji.environments.routing.maze.generator import RandomGenerator
from safetensors.numpy import load_file
from support.exports import MAZE, PAGE, blocks, exported, make_saved
from support.paths import contents

import stoix_like as sl
from stoix_like.config.dicts import config_to_dict
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.ops import trees
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.export import policy
from stoix_like.runtime.weights import exported_policy, policy_folder

FILES = ("policy.stablehlo", "params.safetensors", "model_card.md", "policy.json")


@pytest.fixture
def copied(maze, tmp_path):
    """A copy of an export that may be spoilt."""
    shutil.copytree(maze.folder, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.full
def test_the_description_of_joint_and_other_actions(folder):
    case = exported("ppo_binpack", folder)
    description = json.loads((case.folder / "policy.json").read_text())
    assert description == case.policy.description
    forms = {"shape": ["batch"], "dtype": "int32", "num_values": 24, "num_factors": None, "joint_shape": [6, 4]}
    assert description["action"] == {"kind": "categorical"} | forms
    shapes = {leaf["name"]: (leaf["shape"], leaf["dtype"]) for leaf in description["observation"]}
    assert shapes["ems/x1"] == (["batch", 6], "float32")
    assert shapes["items_placed"] == (["batch", 4], "bool")
    assert list(shapes)[-1] == "action_mask"
    assert shapes["action_mask"] == (["batch", 24], "bool")
    assert (description["format"], description["format_version"]) == ("stoix_like.policy", 1)
    facts = {"algorithm": "ppo", "task_id": "BinPack-v2", "checkpoint": "latest", "update": 3, "seed": 0}
    assert {name: description[name] for name in (*facts, "evaluation")} == facts | {"evaluation": {}}
    whole = json.loads(json.dumps(config_to_dict(case.saved.config)))
    of_the_machine = {"hardware", "logging", "checkpointing"}  # concern nobody who gets the export
    assert description["config"] == {name: leaves for name, leaves in whole.items() if name not in of_the_machine}
    assert whole.keys() - description["config"].keys() == of_the_machine
    assert description["versions"]["jax"] == jax.__version__
    assert description["versions"]["stoix_like"] == versions()["stoix_like"]
    env = sl.make_env(**description["environment"])
    assert (env.task_id, env.action_spec, env.joint_shape) == ("BinPack-v2", case.saved.env.action_spec, (6, 4))
    factored = exported("ppo_factored", folder).policy.description["action"]
    assert (factored["kind"], factored["shape"], factored["joint_shape"]) == ("factored", ["batch", 2], None)
    assert (factored["num_values"], factored["num_factors"]) == (4, 2)  # three jobs or none, for two machines
    one = exported("ppo_maze", folder).policy.description["action"]
    assert (one["kind"], one["num_values"], one["num_factors"], one["joint_shape"]) == ("categorical", 4, None, None)


def test_the_parameters_are_there_by_path(case):
    arrays = load_file(case.folder / "params.safetensors")
    expected = trees.named_leaves(case.saved.network_params(case.saved.params))
    if case.saved.meta.algorithm == "spo":
        duals = case.saved.params.duals
        expected |= {"duals/log_temperature": duals.log_temperature, "duals/log_alpha": duals.log_alpha}
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value)
        assert arrays[name].dtype == value.dtype
    assert any(re.fullmatch(r"actor/params/.*Dense_0/kernel", name) for name in arrays)
    header = (case.folder / "params.safetensors").read_bytes()
    length = int.from_bytes(header[:8], "little")
    notes = json.loads(header[8 : 8 + length])["__metadata__"]
    assert (notes["format"], notes["update"], notes["seed"]) == ("stoix_like.params", "3", "0")
    assert json.loads(notes["config"]) == case.policy.description["config"]


@pytest.mark.full
def test_each_of_several_seeds():
    saved = make_saved("ppo", MAZE, num_seeds=3, seed=5, host={"updates": [2, 9, 4], "scores": [0.5, 0.25, 1.0]})
    assert [policy.seed_index(saved, seed) for seed in (None, 5, 6, 7)] == [0, 0, 1, 2]
    with pytest.raises(ConfigError, match="did not train seed 1") as caught:
        policy.seed_index(saved, 1)
    assert caught.value.hint == "its seeds are: 5, 6, 7"
    files = policy.export_policy(saved, 1)
    assert (files.description["seed"], files.description["update"]) == (6, 9)
    assert files.description["evaluation"] == {"evaluator/mean_return": 0.25}
    alone = saved._replace(params=saved.seed_params(1), config=make_saved("ppo", MAZE).config)
    assert files.program == policy.export_policy(alone).program
    saved = make_saved("ppo", MAZE, num_seeds=2, host={"updates": [2, -1], "scores": [0.5, float("-inf")]})
    with pytest.raises(CheckpointError, match="seed 1 of runs/none has no best checkpoint"):
        policy.export_policy(saved, 1)


def test_exporting_again_replaces_all(maze, tmp_path):
    other = make_saved("ppo", MAZE | {"hidden_dim": 8})
    policy_folder.write(tmp_path, maze.files)
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    sizes = policy_folder.write(tmp_path, policy.export_policy(other))
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    assert {str(path): len(content) for path, content in after.items()} == sizes | {"notes.txt": 4}
    assert [str(path) for path in after if after[path] == before[path]] == ["notes.txt"]
    loaded = sl.load_policy(tmp_path)
    assert loaded.description["config"]["architecture"]["hidden_dim"] == 8
    assert len(repr(loaded)) < 120 > len(repr(other))  # one line in a notebook, without arrays


def test_a_disk_that_fills_up_leaves_the_previous_export(maze, copied):
    before = contents(copied)
    files = maze.files
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(files.program) + 100, limits[1]))  # enough for the first alone
    try:
        with pytest.raises(RunError, match=f"cannot write the export in {copied}: File too large"):
            policy_folder.write(copied, files._replace(parameters=files.program * 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(copied) == before
    assert {path.name for path in copied.iterdir()} == {*FILES}


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_the_way_leaves_the_previous_export(maze, copied, name):
    (copied / name).unlink()
    (copied / name).mkdir()
    before = contents(copied)
    with pytest.raises(RunError, match=f"cannot write the export in {copied}: {name} is a folder there"):
        policy_folder.write(copied, maze.files)
    assert contents(copied) == before


def _edit(folder, **changes):
    path = folder / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _refusal(folder):
    with pytest.raises(CheckpointError) as caught:
        sl.load_policy(folder)
    return caught.value


def test_a_file_in_place_of_the_folder(tmp_path, maze):
    error = _refusal(maze.folder / "policy.json")
    assert error.what == f"no exported policy in {maze.folder / 'policy.json'}"
    assert "scripts/export_policy.py RUN" in error.hint
    (tmp_path / "file").write_text("old")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunError, match=f"cannot write the export in {place}: ") as caught:
            policy_folder.write(place, maze.files)
        assert "--out" in caught.value.hint
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("changes", "reason", "hint"),
    [
        ({"versions": {"jax": "none"}}, "its policy.json was changed", "export again"),
        ({"observation": [{"name": "walls"}]}, "its policy.json was changed", "export again"),
        ({"format_version": 2}, "has format version 2, and this version of stoix_like reads 1", "export again"),
        (
            {"versions": {"jax": "99.1.2"}},
            f"was written with jax 99.1.2, and this is jax {jax.__version__}",
            'pip install "jax>=99.1.2"',
        ),
    ],
)
def test_a_description_that_was_changed_or_is_newer(copied, changes, reason, hint):
    _edit(copied, **changes)
    error = _refusal(copied)
    assert reason in error.what
    assert hint in error.hint


def _with_program(folder, program, jax_version):
    (folder / "policy.stablehlo").write_bytes(program)
    _edit(folder, sha256={"policy.stablehlo": hashlib.sha256(program).hexdigest()}, versions={"jax": jax_version})


def test_a_program_that_this_jax_cannot_read(copied):
    """A program in a bytecode of the future, as from a patch release of this jax, and what is no program at all."""
    program = (copied / "policy.stablehlo").read_bytes()
    future = re.sub(rb"ML\xefR.", b"ML\xefR" + bytes([2 * 99 + 1]), program, flags=re.DOTALL)  # MLIR: version 99
    assert future != program
    patch = f"{jax.__version__}.1"
    _with_program(copied, future, patch)
    error = _refusal(copied)
    assert error.what == f"the export {copied} was written with jax {patch}, and this is jax {jax.__version__}"
    assert f'pip install "jax>={patch}"' in error.hint
    _with_program(copied, future, "0.5.0")  # as where a program is too old for this jax
    error = _refusal(copied)
    assert "was written with jax 0.5.0, and this is" in error.what
    assert error.hint == "export again with this jax: python scripts/export_policy.py RUN"
    for program in (b"", b"no program", bytes(range(256)) * 40, future):
        _with_program(copied, program, jax.__version__)
        assert f"the export {copied} cannot be used by this jax: " in _refusal(copied).what
    assert exported_policy._release("0.12.0.1") == (0, 12)
    assert exported_policy._release("0.9.2") < exported_policy._release("0.10.0.dev20260101")


@pytest.mark.full
def test_the_pages_loader_plays_and_refuses_what_it_must(maze, copied):
    names = {}
    exec(compile(blocks("python")[0], str(PAGE), "exec"), names)
    spec, act = names["load_policy"](copied)
    exec(compile(blocks("python")[1], str(PAGE), "exec"), names)
    levels = jax.random.split(jax.random.key(3), 3)  # in jumanji's own Maze, whose actions are single numbers
    env = jumanji.make("Maze-v0", generator=RandomGenerator(5, 5))
    expected = sl.evaluate_levels(maze.saved.env, maze.policy.policy, None, levels, levels[0], num_envs=3)
    assert [names["play"](env, spec, act, level) for level in levels] == expected.episode_return.tolist()
    _edit(copied, versions={"jax": "99.0.1.dev2"})
    with pytest.raises(RuntimeError, match=r"exported with jax 99\.0\.1\.dev2, this is"):
        names["load_policy"](copied)
    (copied / "policy.stablehlo").write_bytes(b"another")
    with pytest.raises(RuntimeError, match=r"is not the one that policy\.json describes"):
        names["load_policy"](copied)
