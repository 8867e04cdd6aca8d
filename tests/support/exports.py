"""Runs with random parameters and their exports, for the tests of exported policies."""

import functools
import json
import re
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from support.paths import ROOT

import stoix_like as sl
from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.dicts import config_to_dict
from stoix_like.ops import trees
from stoix_like.runtime.export import policy as export_run
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs import folder as run_folder
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.build import ALGORITHMS, build
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.weights import policy_folder

PAGE = ROOT / "docs" / "how-to" / "export-a-policy.md"
SMALL = {"num_envs": 8, "rollout_length": 4, "num_minibatches": 2, "epochs": 1, "hidden_dim": 16, "num_updates": 4}
SEARCH = {"num_particles": 3, "search_depth": 2, "replay_buffer_size": 80, "sample_sequence_length": 4, "batch_size": 8}
MAZE = {"task_id": "Maze-v0", "kwargs": {"num_rows": 5, "num_cols": 5}}
BINPACK = {"task_id": "BinPack-v2", "kwargs": {"max_num_items": 4, "max_num_ems": 8, "obs_num_ems": 6}}
JOBSHOP = {"task_id": "JobShop-v0", "kwargs": {"num_jobs": 3, "num_machines": 2, "max_num_ops": 2}}
PROBE = {"task_id": "probe/action_observation_reward"}
CASES = {
    "ppo_maze": ("ppo", MAZE | {"num_layers": 4}),
    "spo_maze": ("spo", MAZE | {"num_layers": 4, "shared_torso": True}),
    "ppo_binpack": ("ppo", BINPACK),
    "spo_binpack": ("spo", BINPACK | {"observation_adapter": "dense"}),
    "ppo_factored": ("ppo", JOBSHOP | {"observation_adapter": "dense"}),
    "ppo_probe": ("ppo", PROBE | {"compute_dtype": "bfloat16"}),
}
KEY = jax.random.key(0)


def make_saved(algorithm, leaves, *, num_seeds=1, seed=0, host=None, checkpoint="latest"):
    """A run as `read_run` gives it, with random parameters: wider than the initial ones, so that actions differ."""
    make = {"ppo": sl.ppo_config, "spo": sl.spo_config, "alphazero": sl.alphazero_config}[algorithm]
    more = SEARCH if algorithm == "spo" else {}
    config = make(**SMALL | more | leaves, num_seeds=num_seeds, seed=seed)
    built = build(algorithm, config)
    one_row = random_observation(built.env, 1)
    network = jax.eval_shape(built.network.init, KEY, one_row)
    stacked = jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_seeds,) * (num_seeds > 1) + x.shape, x.dtype), network)
    generator = np.random.default_rng(5)
    params = jax.tree.map(
        lambda x: jnp.asarray(0.3 * generator.standard_normal(x.shape), x.dtype),
        ALGORITHMS[algorithm].template(stacked, num_seeds),
    )
    meta = CheckpointMeta(algorithm, config.environment.task_id, 3, config_to_dict(config), host or {})
    return saved_run.SavedRun(Path("runs/none"), config, *built, params, meta, checkpoint)


def written_run(path, saved, *updates):
    """The folder of such a run: its parameters are those of checkpoints of these updates, and of the last as the best.

    Every seed's evaluation at an update is in metrics.jsonl: (update + seed) / 8.
    """
    config = replace_leaves(saved.config, {"run_name": path.name})
    run_folder.create_run(path, to_yaml(config), {}).lock.close()
    meta = saved.meta._replace(config=config_to_dict(config))
    store, best = (CheckpointStore(path / "checkpoints" / name, create=True) for name in ("", "best"))
    for update in updates:
        store.save({"params": saved.params}, meta._replace(update=update))
    host = {"scores": [(updates[-1] + seed) / 8 for seed in saved.seeds], "updates": [updates[-1]] * saved.num_seeds}
    best.save({"params": saved.params}, meta._replace(update=updates[-1], host=host))
    rows = [
        {"category": "EVALUATOR", "update": update, "seed": seed, "evaluator/mean_return": (update + seed) / 8}
        | {"evaluator/duration_ms": 17.0}
        for update in updates
        for seed in saved.seeds
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def untrained_run(path, **leaves):
    """A run folder with the parameters it began with as its best checkpoint."""
    config = replace_leaves(sl.ppo_config(**leaves), {"run_name": path.name})
    run_folder.create_run(path, to_yaml(config), {}).lock.close()
    num_seeds, seed = config.training_core.num_seeds, config.architecture.seed
    env, network, _ = build("ppo", config)
    _, timestep = jax.vmap(env.reset)(jax.random.key(3)[None])
    params = [jax.jit(network.init)(jax.random.key(seed + index), timestep.observation) for index in range(num_seeds)]
    params = params[0] if num_seeds == 1 else jax.tree.map(lambda *leaves: np.stack(leaves), *params)
    meta = CheckpointMeta("ppo", leaves["task_id"], 1, config_to_dict(config), {"updates": [1] * num_seeds})
    CheckpointStore(path / "checkpoints" / "best", create=True).save({"params": params}, meta)
    return path


class Answers(NamedTuple):
    """What the run's own functions say of some observations."""

    most_probable: jax.Array
    sampled: jax.Array
    logits: jax.Array
    value: jax.Array


class Exported:
    """One case, its export on disk, what was read back, and seven observations."""

    def __init__(self, name, folder):
        self.saved = make_saved(*CASES[name])
        self.folder = folder / name
        self.files = export_run.export_policy(self.saved)
        policy_folder.write(self.folder, self.files)
        self.policy = sl.load_policy(self.folder)
        self.observation = random_observation(self.saved.env, 7)
        self._answers = jax.jit(self._answer)

    def rows(self, number):
        """The first observations."""
        return trees.take(self.observation, jnp.arange(number))

    def answers(self, number, key=KEY):
        """What the learner's own search-free policy, and its network, say of the first observations."""
        return self._answers(self.rows(number), key)

    def _answer(self, observation, key):
        saved, policy = self.saved, self.saved.learner.network_policy
        actions = [policy(saved.params, None, observation, key, deterministic) for deterministic in (True, False)]
        return Answers(*actions, *saved.network.actor_critic(saved.network_params(saved.params), observation))


def random_observation(env, rows, seed=11):
    """An observation [rows, ...] of the environment's shapes with anything in it, and an action that is legal."""
    generator = np.random.default_rng(seed)

    def leaf(like):
        shape = (rows, *like.shape)
        if like.dtype == bool:
            return jnp.asarray(generator.random(shape) < 0.6)
        if jnp.issubdtype(like.dtype, jnp.integer):
            return jnp.asarray(generator.integers(0, 5, shape), like.dtype)
        return jnp.asarray(generator.random(shape), like.dtype)

    observation = jax.tree.map(leaf, jax.eval_shape(env.reset, jax.random.key(0))[1].observation)
    mask = observation.action_mask
    legal = jax.nn.one_hot(generator.integers(0, mask.shape[-1], mask.shape[:-1]), mask.shape[-1], dtype=bool)
    return observation._replace(action_mask=mask | legal)


@functools.cache
def exported(name, folder):
    return Exported(name, folder)


def blocks(language):
    """The contents of the page's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
