"""The commands after training, starts, and what a long run leaves in memory."""

import json
import re
from pathlib import Path

import pytest
from support.scripted_runs import BASE, KEPT_HOWEVER_FAST, Scripts, finish, flags, last_update, wait_until

MAZE = BASE | {"task_id": "Maze-v0", "kwargs": "{num_rows: 5, num_cols: 5}"}
MAZE |= {"num_updates": 6, "save_interval": 2, "keep_last_n": 10}
LAZY = """
import sys
import stoix_like as sl

assert "jax" not in sys.modules and "jumanji" not in sys.modules, "imported too early"
sl.ppo_config(num_envs=64)
assert "jax" not in sys.modules, "a configuration needs no JAX"
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.training import train

assert "jumanji" not in sys.modules, "jumanji starts the backend"
import jax

jax.config.update("jax_num_cpu_devices", 3)  # refused once a backend has started
assert jax.device_count() == 3
for name in dir(sl):
    getattr(sl, name)
optional = {"mlflow", "wandb", "opentelemetry", "tensorboardX", "optuna"} & set(sys.modules)
assert not optional, optional
"""


@pytest.fixture(scope="module")
def maze(tmp_path_factory, compile_cache):
    """A small Maze run."""
    folder = tmp_path_factory.mktemp("maze")
    Scripts(folder, compile_cache).run("train_ppo", *flags(**MAZE, run_name="maze"))
    return folder / "maze"


@pytest.fixture
def evaluate(scripts, maze):
    """`evaluate.py` on that run: (flags) -> the JSON result."""

    def run(*argv):
        out, err = scripts.run("evaluate", maze, *argv, "--json", "result.json")
        assert re.fullmatch(r"compiling …\ncompiled in [\d.]+ s\n", err)
        result = json.loads(Path("result.json").read_text())
        for metrics in result["seeds"].values():
            for name, row in metrics.items():
                assert name in out
                assert row["low"] <= row["mean"] <= row["high"]
                assert row["min"] <= row["mean"] <= row["max"]
        return result

    return run


@pytest.mark.full
def test_evaluate_best(evaluate):
    """As test_clean_install.py does, with every number."""
    result = evaluate("--num-episodes", "64")
    assert (result["checkpoint"], result["mode"], result["level_hash"]) == ("best", "deterministic", None)
    assert result["updates"]["0"] in (2, 4, 6)
    assert result["seeds"]["0"]["episode_return"]["episodes"] == 64
    assert result["seeds"]["0"]["solve_rate"]["mean"] == result["seeds"]["0"]["episode_return"]["mean"]


@pytest.mark.full
def test_evaluate_an_update_on_a_level_set_and_latest_by_sampling(evaluate):
    first = evaluate("--checkpoint", "4", "--level-set", "maze-32")
    assert (first["checkpoint"], first["updates"], first["levels"]) == ("4", {"0": 4}, "maze-32")
    assert len(first["level_hash"]) == 12
    assert first["seeds"]["0"]["episode_return"]["episodes"] == 32
    again = evaluate("--checkpoint", "4", "--level-set", "maze-32", "--seed", "7", "--num-envs", "8")
    assert again == first
    result = evaluate("--checkpoint", "latest", "--sampled", "--num-episodes", "64")
    assert (set(result["updates"].values()), result["mode"]) == ({6}, "sampled")
    other = evaluate("--checkpoint", "latest", "--sampled", "--num-episodes", "64", "--seed", "1")
    assert other["seeds"] != result["seeds"]


@pytest.mark.full
def test_animate_draws_what_a_search_plays(scripts, maze):
    flags = ["--search", "--search-depth", "3", "--search-incumbent", "--max-steps", "2", "--out", "searched.gif"]
    out, _ = scripts.run("animate", maze, *flags)
    assert "search 4 x 3, root topk, greedy, resampling none, temperature 0.001, incumbent plan, return" in out
    assert Path("searched.gif").stat().st_size > 1000


def test_importing_the_package_starts_nothing(scripts):
    scripts.python(LAZY)


def test_a_second_start_reads_the_compile_cache(scripts, tmp_path):
    own = Scripts(tmp_path, tmp_path / "cache", (KEPT_HOWEVER_FAST,))
    leaves = BASE | {"num_updates": 2}

    def entries():
        return sorted(path.name for path in (tmp_path / "cache").rglob("*-cache"))

    own.run("train_ppo", *flags(**leaves, run_name="first"))
    first = entries()
    assert any("chunk" in name for name in first)
    own.run("train_ppo", *flags(**leaves, run_name="second", seed=1))
    assert entries() == first
    own.run("train_ppo", *flags(**leaves | {"num_updates": 3}, run_name="third", actor_lr=0.002))
    updates = [name for name in entries() if "chunk" in name]
    assert updates == [name for name in first if "chunk" in name]  # rates and horizon are no part of the program


@pytest.mark.full
def test_no_compile_cache_writes_none(tmp_path):
    own = Scripts(tmp_path, tmp_path / "cache")
    own.run("train_ppo", *flags(**BASE | {"num_updates": 1}, run_name="first"), "--no-compile-cache")
    assert not (tmp_path / "cache").exists()


def _resident_bytes(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_stays_flat_over_200_chunks(scripts):
    """Every update is a chunk, reported and written; every tenth is evaluated and every fiftieth saved.

    The state is about 1.6 MB (two networks of width 256 with their moments), so one that is kept per chunk would cost
    more than 300 MB over 200 chunks. Allocators and orbax's threads may take some: 32 MB is a tenth of that.
    """
    leaves = BASE | {"num_updates": 400, "hidden_dim": 256, "save_interval": 50, "eval_interval": 10}
    run = scripts.cwd / "long"
    with scripts.start("train_ppo", *flags(**leaves, run_name="long")) as process:
        wait_until(lambda: last_update(run) >= 100, process)
        early, first = _resident_bytes(process), last_update(run)
        wait_until(lambda: last_update(run) >= first + 200, process)
        late, last = _resident_bytes(process), last_update(run)
        finish(process)
    assert process.returncode == 0
    assert late - early < 32 * 2**20, f"{(late - early) / 2**20:.1f} MB over {last - first} chunks"
