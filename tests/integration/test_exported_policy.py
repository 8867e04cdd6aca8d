"""Exported policies in a clean environment: jax, numpy, flatbuffers, and the loader as the documentation gives it."""

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
COMPARE = """
import importlib.util
import sys

others = ("stoix_like", "jumanji", "flax", "distrax", "chex", "safetensors", "yaml")
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
RUNS = {
    "spo": SPO_BASE | {"num_updates": 4},
    "ppo": BASE
    | {"task_id": "BinPack-v2", "kwargs": "{max_num_items: 4, max_num_ems: 8, obs_num_ems: 6}", "num_updates": 4},
}


class CleanEnvironment:
    """A virtual environment without this project, and its Python cut off from everything else."""

    def __init__(self, folder):
        self.folder = folder
        self._call(sys.executable, "-m", "venv", folder)

    def install(self, *packages):
        """Installs packages in the versions that CI runs."""
        versions = ("-c", ROOT / "constraints" / "py311.txt") if sys.version_info[:2] == (3, 11) else ()
        quiet = ("--quiet", "--disable-pip-version-check")
        self._call(self.folder / "bin" / "python", "-m", "pip", "install", *quiet, *versions, *packages)

    def python(self, program, *argv):
        """(exit code, all output) of a program."""
        return self._run(self.folder / "bin" / "python", "-I", "-c", program, *argv)

    def _call(self, *command):
        code, output = self._run(*command)
        assert code == 0, output

    def _run(self, *command):
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
        options = {"cwd": self.folder.parent, "env": kept | {"JAX_PLATFORMS": "cpu"}, "text": True, "timeout": 900}
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


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    environment = CleanEnvironment(tmp_path_factory.mktemp("clean") / "venv")
    environment.install("jax", "numpy")
    code, output = environment.python("from jax import export; export.deserialize(bytearray(b''))")
    assert code == 1
    assert "Please install 'flatbuffers'" in output  # as the page says
    environment.install("flatbuffers")
    return environment


def test_the_same_actions_without_this_project(clean, exported):
    code, output = clean.python(LOADER + COMPARE, *exported)
    assert code == 0, output
    assert output.startswith("the same actions as")


@pytest.mark.full
def test_another_policy_is_seen(clean, exported, tmp_path):
    """The check above can fail: one action that differs is enough."""
    folder, path = exported
    stored = dict(np.load(path))
    stored["most probable 7"][3] += 1
    np.savez(tmp_path / "other.npz", **stored)
    code, output = clean.python(LOADER + COMPARE, folder, tmp_path / "other.npz")
    assert code == 1
    assert "Mismatched elements: 1 / 7" in output
