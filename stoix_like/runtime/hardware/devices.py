"""The devices of a run, and the sharding of its state over several devices.

`select` must run before a JAX backend starts. Importing jumanji starts one, so environments are imported only after the
configuration has been read.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from stoix_like.config.sections.runs import HardwareConfig, LoggingConfig
from stoix_like.errors import ConfigError, RunError
from stoix_like.runtime.console import jax_variables, messages
from stoix_like.runtime.hardware import compile_cache as cache
from stoix_like.types import Learner

_LOG = logging.getLogger(__name__)
_PLATFORMS = {"gpu": "cuda"}  # values of `jax_platforms` whose name differs from their device type
#: Parts of XLA's error messages if another process of a collective operation is gone.
_LOST_CONNECTION = ("onnection closed", "onnection reset", "onnection refused", "roken pipe", "remote process exited")
_KINDS = {"cuda": "gpu"}  # values of `device.platform` whose name differs from their device type


def configure(hardware: HardwareConfig, logs: LoggingConfig | None = None, *, compile_cache: bool = True) -> None:
    """Sets the platform, the compile cache and the log levels; starts no backend."""
    messages.configure_logging(logs or LoggingConfig())
    for note in jax_variables.take_notes():
        messages.print_to_stderr(f"note: {note}")
    jax.config.update("jax_enable_compilation_cache", compile_cache)  # overrides the environment
    if compile_cache:
        cache.enable()
    if hardware.device_type != "auto":
        jax.config.update("jax_platforms", _PLATFORMS.get(hardware.device_type, hardware.device_type))
    if hardware.device_type == "cpu" and hardware.num_devices > 1:
        with contextlib.suppress(RuntimeError):  # JAX has started: the number of devices is fixed
            jax.config.update("jax_num_cpu_devices", max(1, hardware.num_devices // (hardware.num_processes or 1)))


def select(
    hardware: HardwareConfig, logs: LoggingConfig | None = None, *, compile_cache: bool = True
) -> list[jax.Device]:
    """The devices of the run, in all its processes. Calls `configure` first.

    Raises ConfigError if the requested device type, or that number of devices, is not available.
    """
    selected = _selected(start(hardware, logs, compile_cache=compile_cache), hardware)
    folder: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # made at run time
    _LOG.debug("devices %s, compile cache %s", selected, folder)
    return selected


def start(
    hardware: HardwareConfig,
    logs: LoggingConfig | None,
    *,
    compile_cache: bool,
    connect: Callable[[], None] = lambda: None,
) -> list[jax.Device]:
    """All devices of the requested type, after `configure`, and after `connect`, which connects the processes.

    Starts the backend. Raises ConfigError if there are no such devices.
    """
    platforms_before: str | None = jax.config.jax_platforms  # type: ignore[attr-defined]  # made at run time
    configure(hardware, logs, compile_cache=compile_cache)
    connect()
    devices = _available(hardware.device_type, platforms_before)
    disable_cache_across_gpus(devices)
    return devices


def disable_cache_across_gpus(devices: list[jax.Device]) -> None:
    """Disables the compile cache if several processes use GPUs.

    On GPUs all processes autotune together. A process that loads a program from the cache does not take part, and the
    others would wait for it.
    """
    if jax.process_count() > 1 and devices[0].platform != "cpu":
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()  # JAX reads the setting once per process, at its first compilation


def _available(device_type: str, platforms_before: str | None) -> list[jax.Device]:
    """All devices of this type. `platforms_before` is restored before the error reports what JAX sees."""
    found, _ = _devices_or_reason()
    # If JAX had started before, it keeps its devices, whatever type is requested.
    if found and (device_type == "auto" or _KINDS.get(device_type, device_type) == found[0].platform):
        return found
    jax.config.update("jax_platforms", platforms_before)
    others, reason = _devices_or_reason()
    if not others:
        given = jax_variables.chosen_platforms() or "the environment"
        raise ConfigError(f"{given}: JAX finds no such device{reason}", "remove the variable, or set JAX_PLATFORMS=cpu")
    seen = ", ".join(sorted({device.platform for device in others}))
    extra = ' or pip install "stoix_like[cuda12]"' if device_type in ("cuda", "gpu") else ""
    raise ConfigError(
        f"hardware.device_type: '{device_type}' is not available; JAX sees only {seen}",
        f"use --device-type {seen.split(',')[0]}{extra}",
    )


def _devices_or_reason() -> tuple[list[jax.Device], str]:
    """(all devices, why there are none: in brackets, or empty)."""
    try:
        return jax.devices(), ""
    except (RuntimeError, AssertionError) as error:  # jax 0.10 asserts where no plugin for the platform is installed
        text = str(error).partition(" (set JAX_PLATFORMS")[0].strip()
        return [], f" ({text.splitlines()[0]})" if text else ""


def _selected(devices: list[jax.Device], hardware: HardwareConfig) -> list[jax.Device]:
    if jax.process_count() > 1:
        return _all_of_processes(devices, hardware)
    if hardware.num_devices > len(devices):
        raise ConfigError(
            f"hardware.num_devices: {hardware.num_devices} devices requested, JAX sees {len(devices)}",
            f"use --num-devices {len(devices)}, or --device-type cpu to simulate several devices",
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
    selected = devices[hardware.cuda_device]
    jax.config.update("jax_default_device", selected)
    return [selected]


def check_equal_counts(devices: list[jax.Device]) -> None:
    """Raises ConfigError, in all processes, if they have different numbers of devices: collectives would fail."""
    counts = [sum(device.process_index == index for device in devices) for index in range(jax.process_count())]
    if len(set(counts)) > 1:
        raise ConfigError(
            f"the processes of this run have {', '.join(map(str, counts))} devices",
            "give each the same number, for example with CUDA_VISIBLE_DEVICES",
        )


def _all_of_processes(devices: list[jax.Device], hardware: HardwareConfig) -> list[jax.Device]:
    if hardware.num_devices not in (1, len(devices)):
        raise ConfigError(
            f"hardware.num_devices: {hardware.num_devices} devices requested, {jax.process_count()} processes have"
            f" {len(devices)} in all",
            f"use --num-devices {len(devices)}, or leave it out: several processes use all they have",
        )
    if hardware.cuda_device:
        raise ConfigError(
            f"hardware.cuda_device: {hardware.cuda_device} chooses one GPU, and this run is of several processes",
            "drop --cuda-device; CUDA_VISIBLE_DEVICES gives each process its own",
        )
    return devices


def check_divisible(num_envs: int, devices: list[jax.Device]) -> None:
    """Raises ConfigError if the number of environments is not divisible by the number of devices."""
    if num_envs % len(devices):
        raise ConfigError(
            f"environment.num_envs: {num_envs} is not divisible by the {len(devices)} devices of the run",
            f"use --num-envs {num_envs // len(devices) * len(devices) or len(devices)}",
        )


@contextlib.contextmanager
def reraise_device_errors(what: str, hint: str | Callable[[], str]) -> Iterator[None]:
    """Raises an XLA error inside the block, nearly always out of memory, as `RunError(what: its first line, hint)`.

    JAX computes asynchronously: the block must wait for its results, or their errors are raised later. A hint that is a
    function is called only if there is an error.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError, ValueError) as error:  # a lost process may raise ValueError
        reason = (str(error).strip() or "out of memory").splitlines()[0]
        if jax.process_count() > 1 and any(part in reason for part in _LOST_CONNECTION):
            raise RunError(
                f"another process of this run is gone ({reason})",
                "see the error message of that process, if it left one; restart all processes with --resume",
            ) from error
        if isinstance(error, ValueError):
            raise
        raise RunError(f"{what}: {reason}", hint if isinstance(hint, str) else hint()) from error


def environment_mesh(devices: list[jax.Device]) -> Mesh:
    """A one-axis mesh for the environments. Its axis is Auto, because explicit axes reject the shuffle's gathers."""
    return jax.make_mesh((len(devices),), ("environments",), axis_types=(AxisType.Auto,), devices=devices)


def state_shardings(state_shape: Any, mesh: Mesh, num_seeds: int, learner: Learner) -> Any:
    """Shardings of a learner's state: replicated, except the arrays at `learner.sharded`.

    These are divided along their first axis (after the seeds), such as environments or the logical shards of a replay,
    if the number of devices divides it.
    """
    replicated = NamedSharding(mesh, PartitionSpec())

    def place(path: Any, leaf: Any) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator=".") + "."
        axis = int(num_seeds > 1 and name.partition(".")[0] not in learner.shared)
        if not name.startswith(tuple(f"{sharded}." for sharded in learner.sharded)) or leaf.shape[axis] % mesh.size:
            return replicated
        return NamedSharding(mesh, PartitionSpec(*[None] * axis, "environments"))

    return jax.tree_util.tree_map_with_path(place, state_shape)


def describe_devices(devices: list[jax.Device]) -> str:
    """`cpu`, `NVIDIA H200`, or `4 x cpu`."""
    kind = devices[0].device_kind if devices[0].platform != "cpu" else "cpu"
    return kind if len(devices) == 1 else f"{len(devices)} x {kind}"
