"""Exported policies without this project: jax, numpy, flatbuffers, and the loader as the documentation gives it.

A process in which nothing else can be imported stands for an environment in which nothing else is installed.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.exports import blocks
from support.marks import quick
from support.scripted_runs import BASE, ROOT, SPO_BASE, Scripts

from stoix_like.ops import trees
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.weights.policy_program import observation_leaves

LOADER = blocks("python")[0]
OTHERS = ("stoix_like", "jumanji", "flax", "distrax", "chex", "safetensors", "yaml")
BLOCK = f"import sys\n\nsys.modules.update(dict.fromkeys({OTHERS}))\n"
COMPARE = (
    f"""
import importlib.util
import sys

others = {OTHERS}
"""
    + """
assert not any(map(importlib.util.find_spec, others)), sys.path
folder, stored = sys.argv[1:]
spec, act = load_policy(folder)
stored = dict(np.load(stored))
for rows in (1, 7):
    batch = {x["name"]: stored[x["name"]][:rows] for x in spec["observation"]}
    np.testing.assert_array_equal(act(batch)["action"], stored[f"most probable {rows}"])
    np.testing.assert_array_equal(act(batch, stored["key"], False)["action"], stored[f"sampled {rows}"])
print("the same actions as", spec["algorithm"], "on", spec["task_id"])
"""
)
RUNS = {
    "spo": SPO_BASE | {"num_updates": 4},
    "ppo": BASE
    | {"task_id": "BinPack-v2", "kwargs": "{max_num_items: 4, max_num_ems: 8, obs_num_ems: 6}", "num_updates": 4},
}


def run(*command):
    """(exit code, all output) of a command without what this project's tests set."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    options = {"env": kept | {"JAX_PLATFORMS": "cpu"}, "text": True, "timeout": 900}
    done = subprocess.run([str(word) for word in command], check=False, capture_output=True, **options)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module", params=quick(RUNS, ("spo",)))
def exported(request, train_here, compile_cache, tmp_path_factory):
    """(export of a run, a file with observations of it and what its policy does)."""
    folder = tmp_path_factory.mktemp(request.param)
    leaves = RUNS[request.param] | {"save_dir": folder, "run_name": "run"}
    assert train_here(algorithm=request.param, **leaves) == 0
    Scripts(folder, compile_cache).run("export_policy", folder / "run", "--checkpoint", "latest", "--out", "policy")
    saved = saved_run.load_run(str(folder / "run"), "latest")
    _, timestep = jax.jit(jax.vmap(saved.env.reset))(jax.random.split(jax.random.key(1), 7))
    act = jax.jit(saved.learner.network_policy, static_argnums=4)
    key = jax.random.key(2**31 + 1)
    stored = {"key": jax.random.key_data(key), **observation_leaves(timestep.observation)}
    for rows in (1, 7):
        observation = trees.take(timestep.observation, jnp.arange(rows))
        stored[f"most probable {rows}"] = act(saved.params, None, observation, key, True)
        stored[f"sampled {rows}"] = act(saved.params, None, observation, key, False)
    np.savez(folder / "stored.npz", **stored)
    return folder / "policy", folder / "stored.npz"


@pytest.fixture(scope="module", params=quick(("blocked", "environment"), ("blocked",)))
def python(request, tmp_path_factory):
    """(program, arguments) -> (exit code, all output), cut off from everything else."""
    if request.param == "blocked":
        return lambda program, *argv: run(sys.executable, "-I", "-c", BLOCK + program, *argv)
    executable = tmp_path_factory.mktemp("clean") / "venv" / "bin" / "python"
    assert run(sys.executable, "-m", "venv", executable.parents[1])[0] == 0
    versions = ("-c", ROOT / "constraints" / "py311.txt") if sys.version_info[:2] == (3, 11) else ()

    def install(*packages):
        code, output = run(executable, "-m", "pip", "install", "--quiet", *versions, *packages)
        assert code == 0, output

    install("jax", "numpy")
    code, output = run(executable, "-I", "-c", "from jax import export; export.deserialize(bytearray(b''))")
    assert code == 1
    assert "Please install 'flatbuffers'" in output  # as the page says
    install("flatbuffers")
    return lambda program, *argv: run(executable, "-I", "-c", program, *argv)


def test_the_same_actions_without_this_project(python, exported):
    code, output = python(LOADER + COMPARE, *exported)
    assert code == 0, output
    assert output.startswith("the same actions as")


@pytest.mark.full
def test_another_policy_is_seen(python, exported, tmp_path):
    """The check above can fail: one action that differs is enough."""
    folder, path = exported
    stored = dict(np.load(path))
    stored["most probable 7"][3] += 1
    np.savez(tmp_path / "other.npz", **stored)
    code, output = python(LOADER + COMPARE, folder, tmp_path / "other.npz")
    assert code == 1
    assert "Mismatched elements: 1 / 7" in output
