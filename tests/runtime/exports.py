"""Runs with random parameters and their exports, for the tests of exported policies."""

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp

import stoix_like as sl
from stoix_like.ops import trees
from stoix_like.runtime import export_run, policy_files, saved_run
from stoix_like.runtime.build import build
from stoix_like.runtime.checkpoint import Meta
from stoix_like.runtime.load import config_to_dict

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "export-a-policy.md"
SMALL = {"num_envs": 8, "rollout_length": 4, "num_minibatches": 2, "epochs": 1, "hidden_dim": 16, "num_updates": 4}
SEARCH = {"num_particles": 3, "search_depth": 2, "replay_buffer_size": 80, "sample_sequence_length": 4, "batch_size": 8}
MAZE = {"task_id": "Maze-v0", "kwargs": {"num_rows": 5, "num_cols": 5}}
BINPACK = {"task_id": "BinPack-v2", "kwargs": {"max_num_items": 4, "max_num_ems": 8, "obs_num_ems": 6}}
JOBSHOP = {"task_id": "JobShop-v0", "kwargs": {"num_jobs": 3, "num_machines": 2, "max_num_ops": 2}}
CASES = {
    "ppo_maze": ("ppo", MAZE),
    "spo_maze": ("spo", MAZE | {"shared_torso": True}),
    "ppo_binpack": ("ppo", BINPACK),
    "spo_binpack": ("spo", BINPACK | {"num_layers": 2}),
    "ppo_factored": ("ppo", JOBSHOP | {"observation_adapter": "dense"}),
    "spo_factored": ("spo", JOBSHOP | {"observation_adapter": "dense", "root": "iid"}),
    "ppo_probe_bfloat16": ("ppo", {"task_id": "probe/action_observation_reward", "compute_dtype": "bfloat16"}),
}


def make_saved(algorithm, leaves, *, num_seeds=1, seed=0, host=None, path=Path("runs/none")):
    """A run as `load_run` gives it, with random parameters: wider than the initial ones, so that actions differ."""
    make = {"ppo": sl.ppo_config, "spo": sl.spo_config}[algorithm]
    more = SEARCH if algorithm == "spo" else {}
    config = make(**SMALL | more | leaves, num_seeds=num_seeds, seed=seed)
    built = build(algorithm, config)
    template = saved_run.state_template(built.learner, num_seeds).params
    shapes, structure = jax.tree.flatten(template)
    keys = jax.random.split(jax.random.key(5), len(shapes))
    filled = [0.3 * jax.random.normal(key, shape.shape) for key, shape in zip(keys, shapes, strict=True)]
    meta = Meta(algorithm, config.environment.task_id, 3, config_to_dict(config), host or {})
    return saved_run.SavedRun(path, config, *built, jax.tree.unflatten(structure, filled), meta)


class Exported:
    """One case, its export on disk, what was read back, and seven observations."""

    def __init__(self, name, folder):
        self.saved = make_saved(*CASES[name])
        self.folder = folder / name
        policy_files.write(self.folder, export_run.exported(self.saved, "latest"))
        self.policy = sl.load_policy(self.folder)
        keys = jax.random.split(jax.random.key(11), 7)
        self.observation = jax.jit(jax.vmap(self.saved.env.reset))(keys)[1].observation

    def expected(self, rows, key, deterministic):
        """Actions of the learner's own search-free policy for the first rows."""
        act = jax.jit(self.saved.learner.network_policy, static_argnums=4)
        return act(self.saved.params, None, trees.take(self.observation, jnp.arange(rows)), key, deterministic)

    def said(self, rows, key, deterministic):
        return self.policy(trees.take(self.observation, jnp.arange(rows)), key, deterministic)


@functools.cache
def exported(name, folder):
    return Exported(name, folder)


def blocks(language):
    """The contents of the page's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def contents(folder):
    """{path: bytes} of every file below a folder."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
