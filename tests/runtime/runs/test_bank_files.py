"""Banks as files: what is written is read, what is damaged or foreign is refused, and a run keeps to its bank."""

import json

import jax
import numpy as np
import pytest

import stoix_like as sl
from stoix_like.commands.machine import make_levels
from stoix_like.config.sections.runs import PPOConfig
from stoix_like.envs.text.bank_making import make_bank
from stoix_like.envs.text.banks import are_held_out
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.evaluators.saved_run import EvaluationSettings, evaluate_run, table_text
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.bank_files import bank_paths, read_bank, write_bank
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays

TASK = "FrozenLake-text-v0"


@pytest.fixture(scope="module")
def lakes():
    return make_bank(TASK, 8, 0)


def test_what_is_written_is_read(lakes, tmp_path):
    for bank in (lakes, make_bank("Sudoku-text-v0", 4, 1)):
        write_bank(tmp_path / "bank.npz", bank)
        found = read_bank(str(tmp_path / "bank.npz"))
        assert (found.task_id, found.rules, found.seed, found.hash) == (bank.task_id, bank.rules, bank.seed, bank.hash)
        jax.tree.map(np.testing.assert_array_equal, found.levels, bank.levels)


def _changed(arrays):
    arrays["levels/holes"] = ~arrays["levels/holes"]


def _heading(**new):
    def change(arrays):
        arrays["heading"] = np.array(json.dumps(json.loads(str(arrays["heading"])) | new))

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_changed, "says the hash [0-9a-f]{12}, and its levels have [0-9a-f]{12}"),
        (_heading(rules={"size": 4, "frozen_p": 0.8, "max_actions": 9}), "says the hash"),
        (_heading(rules={"size": 4}), "is no bank of levels"),
        (_heading(seed=9), "says the hash"),
        (_heading(task_id="Maze-v0"), "is no bank of levels"),
        (lambda arrays: arrays.pop("heading"), "is no bank of levels"),
        (lambda arrays: arrays.pop("levels/goal/row"), "is no bank of levels"),
        (lambda arrays: arrays.update({"levels/goal/row": np.zeros(3, np.int32)}), "is no bank of levels"),
        (lambda arrays: arrays.update({"heading": np.array("{")}), "is no bank of levels"),
    ],
)
def test_a_file_that_is_not_what_it_says(lakes, tmp_path, change, what):
    path = tmp_path / "bank.npz"
    write_bank(path, lakes)
    arrays = read_arrays(path)
    change(arrays)
    write_arrays(path, arrays)
    with pytest.raises(ConfigError, match=what):
        read_bank(str(path))


def test_files_that_are_no_banks(tmp_path):
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04")
    np.save(tmp_path / "objects.npz", np.array([{}]), allow_pickle=True)
    with pytest.raises(ConfigError, match=r"it is torn, or no \.npz file"):
        read_bank(str(tmp_path / "torn.npz"))
    with pytest.raises(ConfigError, match=r"environment\.kwargs\.bank: "):
        read_bank(str(tmp_path / "objects.npz.npy"))
    with pytest.raises(ConfigError, match=r"no file or bank 'sokoban_6x6_one'; did you mean 'sokoban_6x6'"):
        read_bank("sokoban_6x6_one")


def test_the_banks_of_the_package_are_whole_and_as_large_as_is_said():
    sizes = {"frozen_lake_4x4": 2048, "sokoban_6x6": 4096, "sokoban_8x8_2": 2048, "sudoku_4x4": 4096}
    assert {name: read_bank(name).size for name in bank_paths()} == sizes
    for name in bank_paths():
        assert are_held_out(read_bank(name).levels).sum() == sizes[name] // 2


@pytest.mark.full
@pytest.mark.parametrize("name", ["frozen_lake_4x4", "sokoban_6x6", "sudoku_4x4"])
def test_the_banks_of_the_package_come_of_their_seeds(name):
    bank = read_bank(name)
    assert make_bank(bank.task_id, bank.size, bank.seed, bank.rules).hash == bank.hash


def test_a_run_keeps_to_its_bank_and_its_evaluation_names_the_ceiling(lakes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_bank(tmp_path / "lakes.npz", lakes)
    few = {"num_envs": 4, "rollout_length": 4, "num_updates": 2, "num_minibatches": 1, "epochs": 1, "hidden_dim": 8}
    few |= {"num_eval_episodes": 4, "num_eval_envs": 4, "eval_interval": 0, "run_name": "a", "task_id": TASK}
    loaded = load_config(PPOConfig, "ppo", ["--kwargs", "{bank: lakes.npz}"], "ppo/frozen_lake", leaves=few)
    sl.train("ppo", loaded)
    result = evaluate_run("runs/a", settings=EvaluationSettings(level_set="frozenlaketext-16"))
    env = sl.make_env(TASK, kwargs={"bank": lakes})
    keys = sl.level_set("frozenlaketext-16", TASK).keys
    states = [env.held_out(key)[0] for key in keys]
    assert result["ceiling"] == pytest.approx(np.mean([env.ceiling(jax.device_get(s)) for s in states]))
    assert f"solves {result['ceiling']:.4f} of these levels" in table_text(result)
    resume = ["--resume", "runs/a", "--num-updates", "3"]
    (tmp_path / "lakes.npz").rename(tmp_path / "moved.npz")
    with pytest.raises(ConfigError, match=r"no file or bank 'lakes\.npz'"):
        sl.train("ppo", load_config(PPOConfig, "ppo", resume, "ppo/quick"))
    sl.train("ppo", load_config(PPOConfig, "ppo", [*resume, "--kwargs", "{bank: moved.npz}"], "ppo/quick"))
    for name in ("lakes", "moved"):
        write_bank(tmp_path / f"{name}.npz", make_bank(TASK, 8, 5))
    what = f"checkpoint [23] of .*a learned on another bank of levels: its hash was {lakes.hash[:12]}, not"
    with pytest.raises(CheckpointError, match=what):
        evaluate_run("runs/a")
    with pytest.raises(CheckpointError, match=what):
        sl.train("ppo", load_config(PPOConfig, "ppo", ["--resume", "runs/a", "--num-updates", "4"], "ppo/quick"))


def test_the_command_makes_a_bank_and_says_what_it_is(tmp_path, capsys):
    path = tmp_path / "mine.npz"
    argv = [TASK, "--num-levels", "4", "--seed", "7", "--kwargs", "{size: 3}", "--out", str(path)]
    assert make_levels.main(argv) == 0
    bank = read_bank(str(path))
    assert (bank.size, bank.seed, bank.rules["size"]) == (4, 7, 3)
    said = capsys.readouterr().out
    assert f"4 levels of {TASK} with size 3, frozen_p 0.8, max_actions 10" in said
    assert bank.hash[:12] in said
    with pytest.raises(ConfigError, match="exists"):
        make_levels.main(argv)


def test_a_users_own_environment_may_have_an_argument_of_that_name(monkeypatch):
    make_probe = lambda bank="": sl.make_env("probe/constant_reward")
    monkeypatch.setitem(sl.ENVIRONMENTS, "Money-v0", make_probe)
    config = sl.ppo_config(task_id="Money-v0", kwargs={"bank": "hsbc"})
    assert build.make_env(config.environment).task_id == "Money-v0"
