"""Several processes that train one run: the one door to `jax.distributed`.

Every process runs the same program on its own devices, and the run's arrays are spread over all of them. So all must
take the same branches: what one of them alone knows (the clock, a signal, a file) is told to the others here. Process 0
leads: it alone reads and writes files and shows what happens. What fails in one process alone is told to the others
where all next meet, so that they end as well instead of waiting; one that has to go without a word is missed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config.sections import HardwareConfig, LoggingConfig
from stoix_like.errors import ConfigError, RunError, StoixError
from stoix_like.ops import trees
from stoix_like.runtime.console.messages import Heartbeat, print_to_stderr
from stoix_like.runtime.hardware import collectives, devices

START_TIMEOUT = 300.0  # seconds that processes wait for each other at the start
_SHUTDOWN_TIMEOUT = 5.0  # seconds that one which failed waits for the others, which may have failed alike


class OtherProcessFailed(RunError):
    """Another process of the run failed; this one has been told, as all have."""

    def __init__(self, index: int) -> None:
        super().__init__(f"process {index} ended the run", collectives.ITS_OWN_MESSAGE)


class Decision(NamedTuple):
    """What all processes know after `ProcessGroup.sync`."""

    number: int  # the lead's
    flag: bool  # whether any of them raised it


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those of its run. Of one process every method is what it looks like, and nothing is sent.

    Methods that send must be called by all, in the same order.
    """

    index: int = 0
    count: int = 1
    _failures: list[Exception] = field(default_factory=list, compare=False)

    @property
    def is_primary(self) -> bool:
        return self.index == 0

    def broadcast_object(self, find_out: Callable[[], Any]) -> Any:
        """What the lead finds out, as plain JSON values, in every process; only the lead calls the function.

        Raises:
            OtherFailed: in the others, where the function failed. In the lead its own error goes on.
        """
        if self.count == 1:
            return find_out()
        if not self.is_primary:
            text = collectives.broadcast_text("")
            if text == "":
                raise OtherProcessFailed(0)
            return json.loads(text)
        try:
            found = find_out()
        except BaseException:
            with contextlib.suppress(StoixError, ValueError):  # nobody is there to be told
                collectives.broadcast_text("")
            raise
        collectives.broadcast_text(json.dumps(found))
        return found

    def run_on_primary(self, act: Callable[[], Any]) -> Any:
        """What the function gives in the lead, which alone calls it; None in the others.

        Raises:
            OtherFailed: in the others, where it failed. In the lead its own error goes on.
        """
        found = []
        self.broadcast_object(lambda: found.append(act()))
        return found[0] if self.is_primary else None

    @contextlib.contextmanager
    def deferring_errors(self) -> Iterator[None]:
        """Around what can fail in this process and not in the others: of several, it fails at the next `sync`."""
        try:
            yield
        except OtherProcessFailed:
            raise
        except (StoixError, OSError) as error:
            if self.count == 1:
                raise
            self._failures.append(error)

    def sync(self, number: int = 0, flag: bool = False) -> Decision:
        """The lead's number, and whether any process raised its flag.

        Raises:
            StoixError, OSError: what failed `deferring_errors` in this process since the last call.
            OtherFailed: in the others.
        """
        if self.count == 1:
            return Decision(number, flag)
        own = np.array([number, flag, bool(self._failures)], np.int32)
        every = collectives.all_gather(own)  # [count, 3]
        failed = np.flatnonzero(every[:, 2])
        if failed.size == 0:
            return Decision(int(every[0, 0]), bool(every[:, 1].any()))
        raise next(iter(self.take_deferred_errors()), OtherProcessFailed(int(failed[0])))

    def take_deferred_errors(self) -> list[Exception]:
        """What failed `deferring_errors` since the last `sync`; it is not raised any more."""
        failures = self._failures.copy()
        self._failures.clear()
        return failures

    def fetch_to_host(self, tree: Any) -> Any:
        """Copies of the arrays of a state, whole and on the host, keys as their words; None in all but the lead.

        One leaf after the other: on the devices, and in the others, there is never more than one that is whole.
        """
        copy = collectives.host_copy if self.is_primary else lambda array: collectives.host_copy(array) is None
        whole = jax.tree.map(lambda leaf: copy(trees.key_words(leaf)), tree)
        return whole if self.is_primary else None

    def place_from_primary(self, tree: Any, template: Any) -> Any:
        """What the lead holds, placed as the template says; the others give anything.

        Args:
            tree: in the lead arrays in the structure of the template.
            template: a pytree of jax.ShapeDtypeStruct with shardings.
        """
        if self.count == 1:
            return jax.tree.map(lambda leaf, shape: jax.device_put(leaf, shape.sharding), tree, template)
        shapes, structure = jax.tree.flatten(template)
        leaves = jax.tree.leaves(tree) if self.is_primary else [None] * len(shapes)
        placed = [collectives.broadcast_array(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        return jax.tree.unflatten(structure, placed)


def addressable_copy(tree: Any) -> Any:
    """Arrays that every device holds whole, as they lie on the first device of this process."""
    return jax.tree.map(lambda x: x.addressable_data(0) if len(x.sharding.device_set) > 1 else x, tree)


def initialize(hardware: HardwareConfig, logs: LoggingConfig, *, compile_cache: bool) -> ProcessGroup:
    """Meets the other processes of the run, if the configuration speaks of any. Before anything starts a JAX backend.

    Where this program has met them already (here, or by `jax.distributed.initialize`), they are those.

    Raises:
        ConfigError: there is nothing to find: no cluster, a coordinator that does not answer, or no such device.
        RunError: the others did not come.
    """
    is_met = jax.distributed.is_initialized()
    if not (hardware.distributed or hardware.coordinator_address or is_met):
        return ProcessGroup()
    if hardware.distributed and hardware.device_type == "cpu" and hardware.num_devices > 1:
        raise ConfigError(
            f"hardware.num_devices: {hardware.num_devices} CPU devices cannot be shared out in a cluster",
            "leave out --num-devices, or use --coordinator-address, --num-processes and --process-id",
        )
    platforms_before = devices.platforms()
    devices.configure(hardware, logs, compile_cache=compile_cache)
    if not is_met:
        _connect(hardware)
    found = devices.available(hardware.device_type, platforms_before)
    devices.check_equal_counts(found)
    devices.disable_cache_across_gpus(found)
    return ProcessGroup(jax.process_index(), jax.process_count())


_CONNECTING: list[threading.Thread] = []


def _connect(hardware: HardwareConfig) -> None:
    """Waits for the others in a thread: what JAX does meanwhile cannot be interrupted."""
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    failures: list[Exception] = []

    def connect() -> None:
        try:
            jax.distributed.initialize(
                hardware.coordinator_address,
                hardware.num_processes,
                hardware.process_id,
                initialization_timeout=int(2 * START_TIMEOUT),  # where JAX gives up, it ends the process with a stack
            )
        except Exception as error:  # whatever it is, it is raised below
            failures.append(error)

    waiting = threading.Thread(target=connect, daemon=True)
    _CONNECTING.append(waiting)
    waiting.start()
    began, heartbeat = time.monotonic(), Heartbeat(print_to_stderr)
    while waiting.is_alive() and time.monotonic() - began < START_TIMEOUT:
        waiting.join(0.2)
        heartbeat("waiting for the other processes of this run")
    if waiting.is_alive():
        raise RunError("the other processes of this run did not come within five minutes", _START_ALL)
    if failures and isinstance(failures[0], (ValueError, RuntimeError)):
        raise _connection_error(hardware, failures[0]) from failures[0]
    if failures:
        raise failures[0]


_START_ALL = "start all at about the same time, each with its own --process-id, process 0 on the coordinator's host"


def abort(code: int) -> None:
    """Ends a program that failed, or was interrupted, among several processes.

    The others mostly fail alike, and JAX lets none go before all have come. It would wait minutes for one that does
    not, and end with a stack: after some seconds this one goes without a word, and is missed by the others.
    """

    def part() -> None:
        with contextlib.suppress(Exception):  # the others, or their lead, are gone
            jax.distributed.shutdown()

    parting = threading.Thread(target=part, daemon=True)
    if not any(meeting.is_alive() for meeting in _CONNECTING):  # else nobody has come
        parting.start()
        with contextlib.suppress(KeyboardInterrupt):
            parting.join(_SHUTDOWN_TIMEOUT)
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
        f"hardware.coordinator_address: process {hardware.process_id} cannot meet the others at"
        f" {hardware.coordinator_address} ({reason})",
        "process 0 must run on that host, its port free and open to the others, each --process-id given once",
    )
