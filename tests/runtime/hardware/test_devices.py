"""What several processes ask of their devices. With real processes: tests/integration/test_processes.py."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.hardware import devices


class Device(NamedTuple):
    platform: str
    process_index: int


@pytest.fixture
def of_two(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)


@pytest.fixture
def cache(tmp_path):
    """A compile cache that keeps everything, and its folder."""
    wanted = {
        "jax_enable_compilation_cache": True,
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def compiled(number):
    """A new program."""
    return jax.jit(lambda x: x * number + jnp.float32(number))(jnp.ones(3)).block_until_ready()


@pytest.mark.usefixtures("of_two")
@pytest.mark.parametrize(("platform", "is_kept"), [("gpu", False), ("cpu", True)])
def test_gpus_of_several_processes_leave_the_compile_cache_alone(cache, platform, is_kept):
    compiled(3)
    before = len(list(cache.iterdir()))
    assert before > 0
    devices.disable_cache_across_gpus([Device(platform, 0)])
    compiled(5)
    assert (len(list(cache.iterdir())) > before) == is_kept


def test_one_process_with_a_gpu_keeps_what_it_compiles(cache):
    devices.disable_cache_across_gpus([Device("gpu", 0)])
    compiled(7)
    assert list(cache.iterdir())


@pytest.mark.usefixtures("of_two")
def test_processes_have_equally_many_devices_and_a_lost_partner_is_told_from_other_failures():
    devices.check_equal_counts([Device("cpu", 0), Device("cpu", 1)])
    with pytest.raises(ConfigError, match="have 1, 2 devices"):
        devices.check_equal_counts([Device("cpu", 0), Device("cpu", 1), Device("cpu", 1)])
    gone = ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer [::1]:3")
    failed = jax.errors.JaxRuntimeError("INTERNAL: NCCL failed: out of memory")
    for error, kind, message in (
        (gone, RunError, "another process of this run is"),
        (failed, RunError, "an update: INTERNAL: NCCL failed"),
        (ValueError("a bug of ours"), ValueError, "a bug of ours"),
    ):
        with pytest.raises(kind, match=message), devices.reraise_device_errors("an update", "less memory"):
            raise error


def test_fewer_devices_than_processes_leave_one_to_each(monkeypatch):
    """JAX refuses to start with none; what is asked for is compared with all there are, later."""
    asked = {}
    monkeypatch.setattr(jax.config, "update", asked.__setitem__)
    monkeypatch.setattr(devices.messages, "configure_logging", lambda _: None)
    devices.configure(HardwareConfig(device_type="cpu", num_devices=2, num_processes=4), compile_cache=False)
    assert asked["jax_num_cpu_devices"] == 1
