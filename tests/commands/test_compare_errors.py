"""What `compare_search.py` refuses, before anything is played: one `error:` line, one `hint:` line, nothing written."""

from pathlib import Path

import jax
import pytest
from support.paths import load_script

import stoix_like as sl
from stoix_like.commands.entry import exit_code
from stoix_like.config.checks import replace_leaves
from stoix_like.config.dicts import config_to_dict
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs import folder
from stoix_like.runtime.runs.build import build
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.searches import compare

TASK = "probe/action_observation_reward"
HELP = "hint: compare_search.py --help lists its arguments"


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")


@pytest.fixture
def refused(capfd):
    """Runs the script, which must fail with this code and leave no file; gives its error lines."""
    module = load_script("compare_search")

    def run(code, *argv):
        before = sorted(Path().rglob("*"))
        result = exit_code(module.main, list(argv))
        captured = capfd.readouterr()
        lines = captured.err.splitlines()
        assert (result, captured.out) == (code, ""), captured.err
        assert [line.partition(":")[0] for line in lines] == ["error", "hint"], captured.err
        assert sorted(Path().rglob("*")) == before
        return lines

    return run


@pytest.fixture
def run():
    """A run of the smallest kind, with the parameters it began with as its best."""
    config = replace_leaves(sl.ppo_config(task_id=TASK, num_envs=4, rollout_length=2, num_minibatches=1), {"seed": 0})
    path = Path("runs/a")
    folder.create_run(path, to_yaml(config), {}).lock.close()
    env, network, _ = build("ppo", config)
    _, timestep = jax.vmap(env.reset)(jax.random.key(0)[None])
    params = jax.jit(network.init)(jax.random.key(0), timestep.observation)
    meta = CheckpointMeta("ppo", TASK, 1, config_to_dict(config), {"updates": [1]})
    CheckpointStore(path / "checkpoints" / "best", create=True).save({"params": params}, meta)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (
            ["--methods", "greedy,bestof"],
            "argument --methods: expected some of greedy,sampled,best_of,smc,distinct,plan,own, got 'bestof';"
            " did you mean 'best_of'?",
        ),
        (
            ["--methods", ""],
            "argument --methods: expected some of greedy,sampled,best_of,smc,distinct,plan,own, got ''",
        ),
        (["--budgets", "16,0"], "argument --budgets: expected a positive whole number, got '0'"),
        (["--budgets", "16,"], "argument --budgets: expected a positive whole number, got ''"),
        (["--budgets", "1e10"], "argument --budgets: expected at most 2147483647, got '1e10'"),
        (["--temperature", "0"], "argument --temperature: expected a number above 0, or dual, got '0'"),
        (["--temperature", "nan"], "argument --temperature: expected a number above 0, or dual, got 'nan'"),
        (["--temperature", "learned"], "argument --temperature: expected a number above 0, or dual, got 'learned'"),
        (["--num-envs", "1.5"], "argument --num-envs: expected a positive whole number, got '1.5'"),
        (["--seed", "-1"], "argument --seed: expected a whole number in [0, 2147483647], got '-1'"),
        (["--json", "nowhere/x.json"], "argument --json: there is no folder nowhere"),
        (["--plot", "nowhere/x.png"], "argument --plot: there is no folder nowhere"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_flags_are_refused_before_jax_starts(refused, monkeypatch, flags, error):
    monkeypatch.setattr(compare.devices, "select", None)  # calling it would be a bug, with a traceback
    assert refused(2, "runs/a", *flags) == [f"error: {error}", HELP]


def test_a_figure_of_an_unknown_format(refused, monkeypatch):
    monkeypatch.setattr(compare.devices, "select", None)
    assert refused(2, "runs/a", "--plot", "x.gif") == [
        "error: x.gif: unknown figure format '.gif'",
        "hint: use one of .png, .pdf, .svg",
    ]


def test_no_run(refused, monkeypatch):
    monkeypatch.setattr(compare.devices, "select", None)
    assert refused(4, "runs/none") == [
        "error: no run at runs/none",
        "hint: train one first: python scripts/train_ppo.py",
    ]


def test_one_of_several_runs_that_is_not_there(refused, run):
    error, _ = refused(4, "runs/a", "b")
    assert error == "error: no run at b"


def test_without_a_run(refused):
    assert refused(2) == ["error: the following arguments are required: runs", HELP]


def test_levels_of_another_task(refused, run):
    assert refused(2, "a", "--levels", "maze-64") == [
        f"error: evaluation.level_set: 'maze-64' is not a level set of {TASK}",
        "hint: its sets are named actionobservationreward-<number of levels>, for example actionobservationreward-2048",
    ]


def test_a_temperature_that_was_not_learned(refused, run):
    assert refused(2, "a", "--temperature", "dual") == [
        "error: --temperature: runs/a is a run of PPO, which learns none",
        "hint: give a number, such as 0.005",
    ]


def test_a_checkpoint_that_is_not_there(refused, run):
    error, _ = refused(4, "a", "--checkpoint", "newest")
    assert error == "error: no checkpoint is named 'newest'"
