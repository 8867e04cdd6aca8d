"""A run loaded from its folder, or from published parameters: configuration, environment, learner, parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.ops import trees
from stoix_like.runtime.console.messages import print_to_stderr, reported_if_slow
from stoix_like.runtime.console.spelling import command_line
from stoix_like.runtime.runs import inputs
from stoix_like.runtime.runs.build import ALGORITHMS, build, known_algorithm
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.find import find_checkpoint, find_saved, is_parameters
from stoix_like.runtime.runs.host_values import scored_updates
from stoix_like.runtime.weights import parameters, policy_folder
from stoix_like.types import Environment, Learner, Network, NetworkParams, Params


class SavedRun(NamedTuple):
    """The result of `load_run`.

    Attributes:
        path: the run folder, or the file of published parameters.
        config: of the run.
        env, network, learner: built from the configuration.
        params: of the checkpoint; leaves [S, ...] if the run trained several seeds.
        meta: metadata of the checkpoint.
        checkpoint: best, latest, or the number of an update.
        published_scores: {metric: score} that published parameters come with; None for a run.
    """

    path: Path
    config: Any
    env: Environment
    network: Network
    learner: Learner
    params: Params
    meta: CheckpointMeta
    checkpoint: str
    published_scores: dict[str, float] | None = None

    def __repr__(self) -> str:
        facts = f"{self.meta.algorithm}, {self.meta.task_id}, checkpoint={self.checkpoint!r}, updates={self.updates}"
        return f"SavedRun({str(self.path)!r}, {facts}, seeds={self.seeds})"

    @property
    def is_published(self) -> bool:
        """Whether it was loaded from published parameters, without a run."""
        return self.published_scores is not None

    @property
    def folder(self) -> Path:
        """The folder for figures and other output: the run folder, or that of the file."""
        return self.path.parent if self.is_published else self.path

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
        """The update of each seed's parameters. In `best`, they differ."""
        return scored_updates(self.meta, self.num_seeds)

    def network_params(self, params: Params) -> NetworkParams:
        """The network's part of the learner's parameters."""
        return ALGORITHMS[self.meta.algorithm].network_params(params)

    @property
    def state(self) -> Any:
        """The whole state of the run's last checkpoint, for `learner.update`. Loaded at each access.

        A replay that was not saved is empty.

        Raises:
            CheckpointError: the checkpoint is damaged, or only parameters were published.
        """
        if self.is_published:
            what = f"{self.path} holds only parameters: there is no state to continue from"
            raise CheckpointError(what, "load the run that they were exported from")
        store = CheckpointStore(self.path / "checkpoints")
        template = state_template(self.learner, self.num_seeds)
        meta = store.load_meta()
        given = ALGORITHMS[meta.algorithm].inputs(self.config)
        inputs.check_hashes(given, meta, self.path)
        left_out = meta.left_out(self.learner.volatile)
        state = store.load(trees.with_paths(template, dict.fromkeys((*left_out, *given))))
        empty = {path: trees.at_path(template, path) for path in left_out}
        state = trees.with_paths(state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), empty))
        return inputs.place(state, given, template)

    def require_policy(self, asked: str) -> None:
        """Raises ConfigError if the run has no policy of one action a step; `asked`, a command or a flag, needs one."""
        if self.learner.policy is not None:
            return
        path, what = str(self.path), "has no policy that takes one action a step"
        hint = f"{command_line('evaluate', path)} shows its scores"
        if ALGORITHMS[self.meta.algorithm].speaks:
            what, hint = (
                "writes its actions as text",
                f"{command_line('play-text', '--model', path)} shows its episodes",
            )
        raise ConfigError(f"{asked}: {path} {what}", hint)

    def seed_params(self, index: int) -> Params:
        """The parameters of one seed, by its index."""
        return self.params if self.num_seeds == 1 else jax.tree.map(lambda x: x[index], self.params)


def task_of(run: str, checkpoint: str = "best") -> str:
    """The task of a run, without building anything. Takes what `load_run` takes."""
    path = find_saved(run)
    if is_parameters(path):
        return parameters.read_metadata(path).task_id
    folder, update = find_checkpoint(path, checkpoint)
    return CheckpointStore(folder).load_meta(update).task_id


def load_run(run: str, checkpoint: str = "best") -> SavedRun:
    """A run with the parameters of one checkpoint.

    Args:
        run: folder, name, or `latest`. Or parameters that `export_policy.py` published: the path of
            `params.safetensors`, or of its folder; they are of one seed and one checkpoint.
        checkpoint: `best`, `latest`, or the number of an update; ConfigError for published parameters, which have one.
    """
    path = find_saved(run)
    if is_parameters(path):
        return _load_published(path, checkpoint)
    folder, update = find_checkpoint(path, checkpoint)
    store = CheckpointStore(folder)
    meta = store.load_meta(update)
    algorithm = known_algorithm(path, meta.algorithm, "in its versions.json")
    config = config_from_dict(algorithm.config_type, meta.config)
    with reported_if_slow(f"building {meta.task_id} for {path}", print_to_stderr):
        built = build(meta.algorithm, config)
    inputs.check_bank(built.env.bank_hash, meta, path)
    template = state_template(built.learner, config.training_core.num_seeds).params
    params = store.load_part("params", template, meta.update)  # a running run may have written a newer one
    return SavedRun(path, config, built.env, built.network, built.learner, params, meta, checkpoint)


def _load_published(path: Path, checkpoint: str) -> SavedRun:
    if checkpoint != "best":  # the default
        raise ConfigError(f"--checkpoint: {path} holds the parameters of one checkpoint", "leave it out")
    notes = parameters.read_metadata(path)
    policy_folder.check_parameters(path)
    algorithm = known_algorithm(path, notes.algorithm, notes.stoix_like)
    try:
        config = config_from_dict(algorithm.config_type, notes.config)
    except ConfigError as error:
        what = f"the configuration in {path} cannot be used: {error.problems[0]}"
        raise CheckpointError(what, f"use the version of stoix_like that wrote it: {notes.stoix_like}") from error
    config = replace_leaves(config, {"seed": notes.seed, "num_seeds": 1})  # the file has one seed
    with reported_if_slow(f"building {config.environment.task_id} for {path}", print_to_stderr):
        built = build(notes.algorithm, config)
    template = algorithm.published(state_template(built.learner, 1).params)
    params = algorithm.from_published(parameters.read_arrays(path, template))
    meta = CheckpointMeta(notes.algorithm, config.environment.task_id, notes.update, config_to_dict(config), {})
    of_file = built.env, built.network, built.learner, params, meta, notes.checkpoint
    return SavedRun(path, config, *of_file, published_scores=dict(notes.evaluation))


def state_template(learner: Learner, num_seeds: int) -> Any:
    """Shapes and types of a learner's state on one device, [S, ...] for several seeds. Nothing is computed."""
    if num_seeds == 1:
        shapes = jax.eval_shape(learner.init, jax.random.key(0))
    else:
        keys = jax.eval_shape(lambda: jax.vmap(jax.random.key)(jnp.arange(num_seeds)))
        axes = trees.seed_axes(jax.eval_shape(learner.init, jax.random.key(0)), learner.shared)
        shapes = jax.eval_shape(jax.vmap(learner.init, out_axes=axes), keys)
    here = SingleDeviceSharding(jax.devices()[0])  # without it, orbax requires the devices that wrote the checkpoint
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), shapes)
