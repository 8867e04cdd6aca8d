"""The device, the compile cache, and where the state lies on several devices.

`select` must run before anything starts a JAX backend, and importing jumanji does: that is why environments are
imported after the configuration has been read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from stoix_like.config.sections import HardwareConfig, LoggingConfig
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.console import messages
from stoix_like.runtime.hardware import compile_cache as cache

_LOG = logging.getLogger(__name__)
_PLATFORMS = {"cpu": "cpu", "cuda": "cuda", "gpu": "cuda", "tpu": "tpu"}
#: In what XLA reports where a collective operation has lost a partner.
_WORDS_OF_LOSS = ("onnection closed", "onnection reset", "onnection refused", "roken pipe", "remote process exited")
_KINDS = {"cpu": "cpu", "cuda": "gpu", "gpu": "gpu", "tpu": "tpu"}  # what `device.platform` then says


def configure(hardware: HardwareConfig, logs: LoggingConfig | None = None, *, compile_cache: bool = True) -> None:
    """Sets the platform, the compile cache and what libraries may say; starts nothing."""
    messages.configure_logging(logs or LoggingConfig())
    jax.config.update("jax_enable_compilation_cache", compile_cache)  # off, even where the environment names one
    if compile_cache:
        cache.enable()
    if hardware.device_type != "auto":
        jax.config.update("jax_platforms", _PLATFORMS[hardware.device_type])
    if hardware.device_type == "cpu" and hardware.num_devices > 1:
        with contextlib.suppress(RuntimeError):  # JAX has started: there are as many as there are
            jax.config.update("jax_num_cpu_devices", max(1, hardware.num_devices // (hardware.num_processes or 1)))


def select(
    hardware: HardwareConfig, logs: LoggingConfig | None = None, *, compile_cache: bool = True
) -> list[jax.Device]:
    """The devices of this run, in all its processes, after `prepare`.

    Raises:
        ConfigError: the requested device, or that many of them, is not there.
    """
    platforms_before = platforms()
    configure(hardware, logs, compile_cache=compile_cache)
    chosen = _chosen(available(hardware.device_type, platforms_before), hardware)
    disable_cache_across_gpus(chosen)
    folder: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # made at run time
    _LOG.debug("devices %s, compile cache %s", chosen, folder)
    return chosen


def disable_cache_across_gpus(found: list[jax.Device]) -> None:
    """Keeps several processes with GPUs from the compile cache. XLA shares out its search for the best kernels among
    them: one that found its program on disk would leave the others waiting.
    """
    if jax.process_count() > 1 and found[0].platform != "cpu":
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()  # JAX asks once in a process, at the first thing it compiles


def platforms() -> str | None:
    """The platforms that JAX is to look for, as it was told before `prepare`; None: all."""
    found: str | None = jax.config.jax_platforms  # type: ignore[attr-defined]  # made at run time
    return found


def available(device_type: str, platforms_before: str | None) -> list[jax.Device]:
    """All devices of that type. Starts the backend, and another one where that type is not there.

    Raises:
        ConfigError: there are none.
    """
    try:
        found = jax.devices()
    except (RuntimeError, AssertionError):  # jax 0.10 asserts where no plugin for the platform is installed
        found = []
    # A JAX that had started before keeps its devices, whatever is asked for.
    if found and device_type in ("auto", *(name for name, kind in _KINDS.items() if kind == found[0].platform)):
        return found
    jax.config.update("jax_platforms", platforms_before)
    seen = ", ".join(sorted({device.platform for device in jax.devices()}))
    extra = ' or pip install "stoix_like[cuda12]"' if device_type in ("cuda", "gpu") else ""
    raise ConfigError(
        f"hardware.device_type: '{device_type}' is not available; JAX sees only {seen}",
        f"use --device-type {seen.split(',')[0]}{extra}",
    )


def _chosen(devices: list[jax.Device], hardware: HardwareConfig) -> list[jax.Device]:
    if jax.process_count() > 1:
        return _all_of_processes(devices, hardware)
    if hardware.num_devices > len(devices):
        raise ConfigError(
            f"hardware.num_devices: {hardware.num_devices} devices asked for, JAX sees {len(devices)}",
            f"use --num-devices {len(devices)}, or --device-type cpu to try the program on pretended devices",
        )
    if hardware.num_devices > 1 or devices[0].platform == "cpu":
        if hardware.cuda_device:
            where = "several devices" if hardware.num_devices > 1 else devices[0].platform
            raise ConfigError(
                f"hardware.cuda_device: {hardware.cuda_device} chooses one GPU, and this run is on {where}",
                "drop --cuda-device, or use --device-type cuda --num-devices 1",
            )
        return devices[: hardware.num_devices]
    if hardware.cuda_device >= len(devices):
        raise ConfigError(
            f"hardware.cuda_device: no device {hardware.cuda_device}; JAX sees {len(devices)}",
            f"use an index from 0 to {len(devices) - 1}",
        )
    chosen = devices[hardware.cuda_device]
    jax.config.update("jax_default_device", chosen)
    return [chosen]


def check_equal_counts(found: list[jax.Device]) -> None:
    """Refuses processes with different numbers of devices: nothing can be sent between them.

    Raises:
        ConfigError: in all of them.
    """
    of_each = [sum(device.process_index == index for device in found) for index in range(jax.process_count())]
    if len(set(of_each)) > 1:
        raise ConfigError(
            f"the processes of this run have {', '.join(map(str, of_each))} devices",
            "give each as many, by CUDA_VISIBLE_DEVICES for example",
        )


def _all_of_processes(devices: list[jax.Device], hardware: HardwareConfig) -> list[jax.Device]:
    if hardware.num_devices not in (1, len(devices)):
        raise ConfigError(
            f"hardware.num_devices: {hardware.num_devices} devices asked for, {jax.process_count()} processes have"
            f" {len(devices)} in all",
            f"use --num-devices {len(devices)}, or leave it out: several processes use all they have",
        )
    if hardware.cuda_device:
        raise ConfigError(
            f"hardware.cuda_device: {hardware.cuda_device} chooses one GPU, and this run is of several processes",
            "drop --cuda-device; CUDA_VISIBLE_DEVICES gives each process its own",
        )
    return devices


def check_divisible(num_envs: int, found: list[jax.Device]) -> None:
    """Refuses environments that cannot be spread evenly.

    Raises:
        ConfigError: the devices do not divide them.
    """
    if num_envs % len(found):
        raise ConfigError(
            f"environment.num_envs: {num_envs} is not divisible by the {len(found)} devices of the run",
            f"use --num-envs {num_envs // len(found) * len(found) or len(found)}",
        )


@contextlib.contextmanager
def reraise_device_errors(what: str, hint: str | Callable[[], str]) -> Iterator[None]:
    """Turns what XLA reports inside, nearly always that memory ran out, into `RunError(what: its first line, hint)`.

    JAX computes asynchronously: a result that is not waited for inside fails outside. A hint that is a function is
    asked only then.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError, ValueError) as error:  # a lost partner may be a ValueError
        reason = (str(error).strip() or "out of memory").splitlines()[0]
        if jax.process_count() > 1 and any(word in reason for word in _WORDS_OF_LOSS):
            raise RunError(
                f"another process of this run is gone ({reason})",
                "its own message, if it left one, says why; --resume in all of them goes on",
            ) from error
        if isinstance(error, ValueError):
            raise
        raise RunError(f"{what}: {reason}", hint if isinstance(hint, str) else hint()) from error


def environment_mesh(devices: list[jax.Device]) -> Mesh:
    """A one-axis mesh over which environments are spread. Auto: explicit axes refuse the shuffle's gathers."""
    return jax.make_mesh((len(devices),), ("environments",), axis_types=(AxisType.Auto,), devices=devices)


def state_shardings(state_shape: Any, mesh: Mesh, num_seeds: int) -> Any:
    """Shardings for a learner's state: everything replicated, except what `rollout` and `replay` keep per environment.

    The level pool is replicated: any environment may take any level. A replay is spread by its logical shards, if the
    devices divide them.
    """
    replicated = NamedSharding(mesh, PartitionSpec())
    by_environment = NamedSharding(
        mesh, PartitionSpec("environments") if num_seeds == 1 else PartitionSpec(None, "environments")
    )
    shardings = jax.tree.map(lambda _: replicated, state_shape)
    playing = shardings.rollout._replace(
        **{
            name: jax.tree.map(lambda _: by_environment, getattr(state_shape.rollout, name))
            for name in ("env_state", "observation", "episodes")
        }
    )
    shardings = shardings._replace(rollout=playing)
    if "replay" not in shardings._fields:
        return shardings
    num_shards = jax.tree.leaves(state_shape.replay.experience)[0].shape[0 if num_seeds == 1 else 1]
    placed = by_environment if num_shards % mesh.size == 0 else replicated
    experience = jax.tree.map(lambda _: placed, state_shape.replay.experience)
    return shardings._replace(replay=shardings.replay._replace(experience=experience))


def describe_devices(devices: list[jax.Device]) -> str:
    """`cpu`, `NVIDIA H200`, or `4 x cpu`."""
    kind = devices[0].device_kind if devices[0].platform != "cpu" else "cpu"
    return kind if len(devices) == 1 else f"{len(devices)} x {kind}"
