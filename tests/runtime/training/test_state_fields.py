"""What a learner says of the fields of its state: which seeds share, which checkpoints leave out, which are divided."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from stoix_like.config.sections.runs import ppo_config
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.runs.checkpoint import CheckpointMeta
from stoix_like.runtime.runs.saved import state_template
from stoix_like.runtime.training import chunk, start
from stoix_like.types import Learner


class Hyper(NamedTuple):
    rate: jax.Array


class State(NamedTuple):
    params: jax.Array
    hyper: Hyper
    key: jax.Array
    step: jax.Array
    data: dict[str, Any]


def init(key):
    data = {"x": jnp.arange(4.0), "y": jnp.ones((4, 2))}
    return State(jax.random.normal(key, (2,)), Hyper(jnp.float32(0.5)), key, jnp.int32(0), data)


def update(state):
    params = state.params + state.hyper.rate * state.data["x"].sum()
    return state._replace(params=params, step=state.step + 1), {"trainer/mean": params.mean()}


LEARNER = Learner(init, update, None, None, volatile=("data",), shared=("data",), sharded=("data.x", "params"))


def trained(num_seeds, seed=0):
    config = ppo_config(num_seeds=num_seeds, seed=seed)
    make_state, template = start.initial_state(LEARNER, config, jax.devices()[:1])
    state = make_state()
    assert jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, template)
    program = chunk.compile_chunk(LEARNER, num_seeds, state)
    return program(state, np.int32(3))


def test_what_all_seeds_share_is_there_once_and_each_seed_learns_as_if_alone():
    state, metrics = trained(3)
    assert (state.params.shape, state.data["x"].shape, state.data["y"].shape) == ((3, 2), (4,), (4, 2))
    for index in range(3):
        alone, its_metrics = trained(1, seed=index)
        np.testing.assert_array_equal(state.params[index], alone.params)
        assert metrics["trainer/mean"][index] == its_metrics["trainer/mean"]
    template = state_template(LEARNER, 3)
    assert jax.tree.map(lambda x: x.shape, template) == jax.tree.map(jnp.shape, state)


def test_what_seeds_share_must_not_depend_on_the_key():
    def with_random_data(key):
        return init(key)._replace(data={"x": jax.random.normal(key, (4,)), "y": jnp.ones((4, 2))})

    learner = LEARNER._replace(init=with_random_data)
    with pytest.raises(ValueError, match="out_axes"):
        start.initial_state(learner, ppo_config(num_seeds=3), jax.devices()[:1])


@pytest.mark.parametrize(
    ("config", "expected"),
    [({}, ()), ({"checkpointing": {"save_replay": True}}, ()), ({"checkpointing": {"save_replay": False}}, ("data",))],
)
def test_a_checkpoint_leaves_out_volatile_fields_only_if_its_configuration_says_so(config, expected):
    assert CheckpointMeta("ppo", "task", 1, config, {}).left_out(LEARNER.volatile) == expected


@pytest.mark.parametrize(("num_seeds", "params"), [(1, ("environments",)), (3, (None, "environments"))])
def test_the_named_arrays_are_divided_along_their_first_axis_after_the_seeds(num_seeds, params):
    mesh = devices.environment_mesh(jax.devices()[:1])
    shapes = state_template(LEARNER, num_seeds)
    placed = devices.state_shardings(shapes, mesh, num_seeds, LEARNER)
    assert placed.params.spec == PartitionSpec(*params)
    assert placed.data["x"].spec == PartitionSpec("environments")  # shared: it has no axis of seeds
    assert placed.data["y"].spec == placed.key.spec == placed.hyper.rate.spec == PartitionSpec()


def test_a_resume_with_another_rate_replaces_it_without_compiling(caplog):
    """A loop does so at each iteration, and a program that is compiled leaves memory behind."""
    mesh = jax.make_mesh((1,), ("seeds",), axis_types=(jax.sharding.AxisType.Auto,))
    placed = NamedSharding(mesh, PartitionSpec())
    state = init(jax.random.key(0))._replace(hyper=Hyper(jax.device_put(jnp.full(3, 0.5), placed)))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        found = start.with_hyper(state, Hyper(0.5), Hyper(0.25)).hyper.rate
        assert not caplog.records
        jax.block_until_ready(jax.jit(lambda x: x + 1)(found))
        assert caplog.records
    np.testing.assert_array_equal(found, np.full(3, 0.25, np.float32))
    assert (found.dtype, found.sharding, found.weak_type) == (jnp.float32, placed, False)
    assert start.with_hyper(state, Hyper(0.5), Hyper(0.5)) is state
