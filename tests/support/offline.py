"""A learner that acts nowhere: a linear model of the pairs of a file, as in docs/how-to/add-an-algorithm.md."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import stoix_like as sl
from stoix_like.config.sections.leaves import MACHINE, leaf
from stoix_like.runtime.runs.build import Algorithm, RunComponents
from stoix_like.types import role_key

BATCH = 8


@dataclass(frozen=True)
class DataConfig:
    """What is learned from."""

    data_file: str = leaf("pairs.npz", "file of `x` [M, D] and `y` [M], float32", MACHINE)


@dataclass(frozen=True)
class OfflineConfig(sl.PPOConfig):
    """The configuration of the linear model."""

    data: DataConfig = field(default_factory=DataConfig)


class Hyper(NamedTuple):
    rate: jax.Array


class Params(NamedTuple):
    critic: jax.Array  # [D]; so named because the battery asks whether a critic moves


class State(NamedTuple):
    params: Params
    hyper: Hyper
    key: jax.Array
    step: jax.Array
    data: Any  # an input
    samples_trained: jax.Array  # [] int32, exact over all updates


def read(config):
    with np.load(config.data.data_file) as file:
        return {"x": file["x"], "y": file["y"]}


def make(config):
    data = read(config)
    rate = config.optimization.actor_lr

    def init(key):
        params = Params(jax.random.normal(role_key(key, "params"), data["x"].shape[1:]))
        empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), data)
        return State(params, Hyper(jnp.float32(rate)), key, jnp.int32(0), empty, jnp.int32(0))

    def update(state):
        rows = jax.random.randint(role_key(state.key, "replay", state.step), (BATCH,), 0, len(state.data["y"]))
        batch = jax.tree.map(lambda x: x[rows], state.data)
        loss, gradient = jax.value_and_grad(lambda params: jnp.mean(errors(params, batch) ** 2))(state.params)
        params = jax.tree.map(lambda p, g: p - state.hyper.rate * g, state.params, gradient)
        counted = state.samples_trained + BATCH
        metrics = {"trainer/loss": loss, "trainer/samples_trained_max": counted.astype(jnp.float32)}
        return state._replace(params=params, step=state.step + 1, samples_trained=counted), metrics

    learner = sl.Learner(
        init,
        update,
        score=lambda params, items, _: {"score": -(errors(params, items) ** 2)},
        items=data,
        shared=("data",),
    )
    return RunComponents(sl.make_env(config.environment.task_id), None, learner)


def errors(params, batch):
    return batch["x"] @ params.critic - batch["y"]


ROW = Algorithm(
    OfflineConfig,
    make=None,
    make_hyper=lambda config: Hyper(np.float32(config.optimization.actor_lr)),
    samples_per_update=lambda _: BATCH,
    build=make,
    inputs=lambda config: {"data": read(config)},
    steps_per_update=lambda _: BATCH,
)


def write_pairs(path, seed=0, num=32):
    """A file of pairs that a line through the origin fits exactly."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, 3)).astype(np.float32)
    np.savez(path, x=x, y=x @ np.float32([1.0, -2.0, 0.5]))
    return path
