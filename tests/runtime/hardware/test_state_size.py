"""What a state needs, and what its devices have."""

from typing import Any, NamedTuple

import jax
import pytest
from jax.sharding import PartitionSpec, SingleDeviceSharding

from stoix_like.config.sections.runs import AlphaZeroConfig, PPOConfig
from stoix_like.errors import RunError
from stoix_like.runtime.hardware import devices, state_size


class State(NamedTuple):
    """A small one, and a replay of 2,000 billion numbers."""

    params: Any
    replay: Any


def template(sharding, size=2 * 10**12):
    params = {"kernel": jax.ShapeDtypeStruct((10, 4), "float32", sharding=sharding)}
    return State(params, jax.ShapeDtypeStruct((size,), "bfloat16", sharding=sharding))


HERE = SingleDeviceSharding(jax.devices("cpu")[0])


def test_the_bytes_of_a_state_are_those_of_its_arrays():
    assert state_size.num_bytes(template(HERE, size=100)) == 10 * 4 * 4 + 100 * 2
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert state_size.num_bytes(jax.ShapeDtypeStruct((3,), key.dtype, sharding=HERE)) == 3 * 8


def test_copies_count_on_every_device_and_parts_once():
    mesh = devices.environment_mesh(jax.devices("cpu"))
    copies = jax.sharding.NamedSharding(mesh, PartitionSpec())
    parts = jax.sharding.NamedSharding(mesh, PartitionSpec("environments"))
    leaf = jax.ShapeDtypeStruct((8 * mesh.size,), "float32", sharding=copies)
    assert state_size.num_bytes(leaf) == 8 * mesh.size * 4 * mesh.size
    assert state_size.num_bytes(leaf.update(sharding=parts)) == 8 * mesh.size * 4


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        (PPOConfig(), "--num-envs, --reset-pool-size, --hidden-dim, --num-layers or --num-seeds"),
        (
            AlphaZeroConfig(),
            "--num-envs, --reset-pool-size, --replay-buffer-size, --hidden-dim, --num-layers or --num-seeds",
        ),
    ],
)
def test_a_state_that_is_too_large_is_refused_with_the_field_and_flags_that_exist(config, flags):
    state_size.require_memory(template(HERE, size=100), config)
    with pytest.raises(RunError) as caught:
        state_size.require_memory(template(HERE), config)
    assert "needs 4,000.0 GB, of which 4,000.0 GB are for replay, and there are " in caught.value.what
    assert caught.value.hint == f"lower {flags}"


@pytest.mark.parametrize(("text", "limit"), [("1000\n", 1000), ("max\n", None), (None, None)])
def test_a_container_may_have_less_than_its_machine(tmp_path, monkeypatch, text, limit):
    path = tmp_path / "memory.max"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(state_size, "_CGROUP_LIMIT", path)
    found = state_size.host_bytes()
    assert found == limit if limit is not None else found > 10**8


class Device(NamedTuple):
    """A device that says what it has."""

    limit: int | None
    platform: str = "gpu"

    def memory_stats(self):
        return None if self.limit is None else {"bytes_limit": self.limit}


@pytest.mark.parametrize(("limits", "together"), [([5, 7], 12), ([5, None], None)])
def test_the_memory_of_accelerators_is_what_they_say(limits, together):
    assert state_size.available_bytes([Device(limit) for limit in limits]) == together
