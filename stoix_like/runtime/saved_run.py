"""A finished or unfinished run, read back: its configuration, environment, learner and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from stoix_like.errors import CheckpointError
from stoix_like.runtime import run_folder
from stoix_like.runtime.build import ALGORITHMS, build
from stoix_like.runtime.checkpoint import CheckpointStore, Meta
from stoix_like.runtime.checkpoint_trees import stored_template
from stoix_like.runtime.load import config_from_dict
from stoix_like.types import Environment, Learner, Network, NetworkParams, Params


class SavedRun(NamedTuple):
    """What `load_run` gives.

    Attributes:
        path: the run folder.
        config: as it ran.
        env: built from the configuration.
        network: likewise.
        learner: likewise.
        params: of the chosen checkpoint; leaves [S, ...] if the run trained several seeds.
        meta: what the checkpoint says of itself; `meta.update` is when it was written.
    """

    path: Path
    config: Any
    env: Environment
    network: Network
    learner: Learner
    params: Params
    meta: Meta

    @property
    def num_seeds(self) -> int:
        return int(self.config.training_core.num_seeds)

    @property
    def seeds(self) -> list[int]:
        """The seeds that were trained, in the order of the parameters."""
        first = int(self.config.architecture.seed)
        return list(range(first, first + self.num_seeds))

    @property
    def updates(self) -> list[int]:
        """The update that each seed's parameters are of: in `best` each has its own."""
        return list(self.meta.host.get("updates", [self.meta.update] * self.num_seeds))

    def network_params(self, params: Params) -> NetworkParams:
        """The network's own among the learner's parameters."""
        return ALGORITHMS[self.meta.algorithm].network_params(params)

    @property
    def state(self) -> Any:
        """The whole state of the run's last checkpoint, read when asked for; `learner.update` goes on from it. A replay
        that was not kept is empty.

        Raises:
            CheckpointError: it is damaged.
        """
        store = CheckpointStore(self.path / "checkpoints")
        template = state_template(self.learner, self.num_seeds)
        stored = stored_template(template, store.load_meta())
        state = store.load(stored)
        if stored is template:
            return state
        replay = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), template.replay)
        return state._replace(replay=replay)

    def seed_params(self, index: int) -> Params:
        """The parameters of one seed, by its position."""
        return self.params if self.num_seeds == 1 else jax.tree.map(lambda x: x[index], self.params)


def load_run(run: str, checkpoint: str = "best") -> SavedRun:
    """A run with the parameters of one checkpoint: `best`, `latest`, or the number of an update.

    Raises:
        CheckpointError: no such run or checkpoint, or a damaged one.
    """
    path = run_folder.find_run(run)
    update = int(checkpoint) if checkpoint.isdecimal() else None
    store = open_checkpoints(path, checkpoint)
    meta = store.load_meta(update)
    if meta.algorithm not in ALGORITHMS:
        raise CheckpointError(
            f"{path} is a run of {meta.algorithm.upper()}, which this version does not know",
            "use the version of stoix_like in its versions.json",
        )
    config = config_from_dict(ALGORITHMS[meta.algorithm].config_type, meta.config)
    built = build(meta.algorithm, config)
    template = state_template(built.learner, config.training_core.num_seeds).params
    params = store.load_part("params", template, meta.update)  # a running run may have written a newer one meanwhile
    return SavedRun(path, config, built.env, built.network, built.learner, params, meta)


def open_checkpoints(path: Path, checkpoint: str) -> CheckpointStore:
    """The store that holds the named checkpoint.

    Raises:
        CheckpointError: the name is none of best, latest and a number, or there is no checkpoint.
    """
    if checkpoint not in ("best", "latest") and not checkpoint.isdecimal():
        raise CheckpointError(f"no checkpoint is named '{checkpoint}'", "use best, latest, or the number of an update")
    store = CheckpointStore(path / "checkpoints")
    best = path / "checkpoints" / "best"
    if checkpoint != "best":
        return store
    if store.updates() and not (best.is_dir() and CheckpointStore(best).updates()):
        raise CheckpointError(f"{path} has no best checkpoint: it was not evaluated yet", "use --checkpoint latest")
    return CheckpointStore(best)


def state_template(learner: Learner, num_seeds: int) -> Any:
    """Shapes, types and one device for a learner's state, [S, ...] for several seeds. Nothing is computed."""
    if num_seeds == 1:
        shapes = jax.eval_shape(learner.init, jax.random.key(0))
    else:
        keys = jax.eval_shape(lambda: jax.vmap(jax.random.key)(jnp.arange(num_seeds)))
        shapes = jax.eval_shape(jax.vmap(learner.init), keys)
    here = SingleDeviceSharding(jax.devices()[0])  # else orbax asks for the devices of the process that wrote it
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), shapes)
