"""The processes that train one run; the only module that uses `jax.distributed`.

Every process runs the same program on its own devices, and the run's arrays are sharded over all devices. All processes
must take the same branches, so process 0 broadcasts what only it knows: the clock, signals, files. Only process 0 reads
and writes files and prints. An error in one process is passed to the next `sync`, which raises it in all processes, so
that none waits for ever. A process that exits without reporting an error is detected when the next collective fails.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config.sections.runs import HardwareConfig, LoggingConfig
from stoix_like.errors import ConfigError, RunError, StoixError
from stoix_like.ops import trees
from stoix_like.runtime.console.messages import Heartbeat, print_to_stderr
from stoix_like.runtime.hardware import collectives, devices

START_TIMEOUT = 300.0  # seconds that processes wait for each other at the start
_SHUTDOWN_TIMEOUT = 5.0  # seconds that a failed process waits for the others to shut down


class OtherProcessFailed(RunError):
    """Another process of the run failed and reported it to all processes."""

    def __init__(self, index: int) -> None:
        super().__init__(f"process {index} ended the run", collectives.SEE_ITS_MESSAGE)


class Decision(NamedTuple):
    """The result of `ProcessGroup.sync`, equal in all processes."""

    length: int  # of process 0
    stop: bool  # True if any process set it


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run, as seen by this one. With one process nothing is communicated.

    All processes must call the collective methods in the same order: `broadcast_object`, `run_on_primary`, `sync`,
    `fetch_to_host` and `place_from_primary`.
    """

    index: int = 0
    count: int = 1

    @property
    def is_primary(self) -> bool:
        return self.index == 0

    def broadcast_object(self, function: Callable[[], Any]) -> Any:
        """The result of the function, plain JSON values, in all processes; only process 0 calls it.

        If it raises, its error is raised in process 0 and OtherProcessFailed in the others.
        """
        if self.count == 1:
            return function()
        if not self.is_primary:
            text = collectives.broadcast_text("")
            if text == "":
                raise OtherProcessFailed(0)
            return json.loads(text)
        try:
            result = function()
        except BaseException:
            with contextlib.suppress(StoixError, ValueError):  # the other processes may be gone
                collectives.broadcast_text("")
            raise
        collectives.broadcast_text(json.dumps(result))
        return result

    def run_on_primary(self, function: Callable[[], Any]) -> Any:
        """The result of the function in process 0, which alone calls it; None in the others.

        Raises as `broadcast_object`.
        """
        results = []
        self.broadcast_object(lambda: results.append(function()))
        return results[0] if self.is_primary else None

    def sync(self, length: int = 0, stop: bool = False, error: Exception | None = None) -> Decision:
        """The meeting of the processes, once per chunk: the length of process 0, and whether any process stops.

        An error that has happened in this process alone is raised here, and OtherProcessFailed in the others.
        """
        if error is not None and self.count == 1:
            raise error
        if self.count == 1:
            return Decision(length, stop)
        own = np.array([length, stop, error is not None], np.int32)
        every = collectives.all_gather(own)  # [count, 3]
        failed = np.flatnonzero(every[:, 2])
        if failed.size:
            raise error or OtherProcessFailed(int(failed[0]))
        return Decision(int(every[0, 0]), bool(every[:, 1].any()))

    def fetch_to_host(self, tree: Any) -> Any:
        """Unsharded copies of a state's arrays on the host of process 0, keys as raw data; None in the others.

        Leaves are gathered one by one, so that the devices and the other hosts hold at most one unsharded leaf.
        """
        copy = collectives.host_copy if self.is_primary else lambda array: collectives.host_copy(array) is None
        whole = jax.tree.map(lambda leaf: copy(trees.key_data(leaf)), tree)
        return whole if self.is_primary else None

    def place_from_primary(self, tree: Any, template: Any) -> Any:
        """The arrays of process 0, placed by the shardings of the template.

        Args:
            tree: on process 0, arrays in the structure of the template; ignored on the others.
            template: a pytree of jax.ShapeDtypeStruct with shardings.
        """
        if self.count == 1:
            return jax.tree.map(lambda leaf, shape: jax.device_put(leaf, shape.sharding), tree, template)
        shapes, structure = jax.tree.flatten(template)
        leaves = jax.tree.leaves(tree) if self.is_primary else [None] * len(shapes)
        placed = [collectives.broadcast_array(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        return jax.tree.unflatten(structure, placed)


def addressable_copy(tree: Any) -> Any:
    """Replicated arrays as single-device arrays on the first device of this process."""
    return jax.tree.map(lambda x: x.addressable_data(0) if len(x.sharding.device_set) > 1 else x, tree)


def is_initialized() -> bool:
    """Whether this program is one of several processes."""
    return bool(jax.distributed.is_initialized())


def initialize(hardware: HardwareConfig, logs: LoggingConfig, *, compile_cache: bool) -> ProcessGroup:
    """The process group of the run; connects the processes if the configuration has several.

    Must run before a JAX backend starts. If `jax.distributed` is initialized already, its processes are used.
    Raises ConfigError if no cluster is found, the coordinator does not answer, or the device is not available, and
    RunError if the other processes did not connect in time.
    """
    is_connected = is_initialized()
    if not (hardware.distributed or hardware.coordinator_address or is_connected):
        return ProcessGroup()
    if hardware.distributed and hardware.device_type == "cpu" and hardware.num_devices > 1:
        raise ConfigError(
            f"hardware.num_devices: {hardware.num_devices} CPU devices cannot be divided in a cluster",
            "leave out --num-devices, or use --coordinator-address, --num-processes and --process-id",
        )
    connect = (lambda: None) if is_connected else functools.partial(_connect, hardware)
    devices.check_equal_counts(devices.start(hardware, logs, compile_cache=compile_cache, connect=connect))
    return ProcessGroup(jax.process_index(), jax.process_count())


_CONNECTING: list[threading.Thread] = []


def _connect(hardware: HardwareConfig) -> None:
    """Connects in a thread, because JAX cannot be interrupted while it waits for the other processes."""
    jax.config.update("jax_enable_preemption_service", False)  # it would handle SIGTERM itself
    failures: list[Exception] = []

    def connect() -> None:
        try:
            jax.distributed.initialize(
                hardware.coordinator_address,
                hardware.num_processes,
                hardware.process_id,
                initialization_timeout=int(2 * START_TIMEOUT),  # at its timeout JAX aborts the process
            )
        except Exception as error:  # raised below
            failures.append(error)

    waiting = threading.Thread(target=connect, daemon=True)
    _CONNECTING.append(waiting)
    waiting.start()
    began, heartbeat = time.monotonic(), Heartbeat(print_to_stderr)
    while waiting.is_alive() and time.monotonic() - began < START_TIMEOUT:
        waiting.join(0.2)
        heartbeat("waiting for the other processes of this run")
    if waiting.is_alive():
        raise RunError("the other processes of this run did not connect within five minutes", _START_ALL)
    if failures and isinstance(failures[0], (ValueError, RuntimeError)):
        raise _connection_error(hardware, failures[0]) from failures[0]
    if failures:
        raise failures[0]


_START_ALL = "start all at about the same time, each with its own --process-id, process 0 on the coordinator's host"


def abort(code: int) -> None:
    """Exits one of several processes after a failure or an interruption.

    The other processes usually fail too. `jax.distributed.shutdown` waits minutes for all of them and then aborts with
    a stack trace, so this process exits after a few seconds; the next collective of the others fails.
    """

    def shut_down() -> None:
        with contextlib.suppress(Exception):  # the other processes may be gone
            jax.distributed.shutdown()

    thread = threading.Thread(target=shut_down, daemon=True)
    if not any(connecting.is_alive() for connecting in _CONNECTING):  # else the processes are not connected
        thread.start()
        with contextlib.suppress(KeyboardInterrupt):
            thread.join(_SHUTDOWN_TIMEOUT)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _connection_error(hardware: HardwareConfig, error: Exception) -> ConfigError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if hardware.coordinator_address is None:
        return ConfigError(
            f"hardware.distributed: no cluster is found ({reason})",
            "give --coordinator-address HOST:PORT --num-processes N --process-id I to each process",
        )
    return ConfigError(
        f"hardware.coordinator_address: process {hardware.process_id} cannot connect to"
        f" {hardware.coordinator_address} ({reason})",
        "process 0 must run on that host, its port free and open to the others, each --process-id given once",
    )
