"""Several processes that train one run: the one door to `jax.distributed`.

Every process runs the same program on its own devices, and the run's arrays are spread over all of them. So all must
take the same branches: what one of them alone knows (the clock, a signal, a file) is told to the others here. Process 0
leads: it alone reads and writes files and shows what happens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config import HardwareConfig, LoggingConfig
from stoix_like.errors import ConfigError, RunError
from stoix_like.ops import trees
from stoix_like.runtime import devices

_ENDED = "process 0 ended the run"
_SEE = "its own message says why"


class Agreed(NamedTuple):
    """What all processes know after `Team.agree`."""

    number: int  # the lead's
    flag: bool  # whether any of them raised it


@dataclass(frozen=True)
class Team:
    """This process among those of its run. Of one process every method is what it looks like, and nothing is sent.

    Methods that send must be called by all, in the same order.
    """

    index: int = 0
    count: int = 1

    @property
    def is_lead(self) -> bool:
        return self.index == 0

    def told(self, find_out: Callable[[], Any]) -> Any:
        """What the lead finds out, as plain JSON values, in every process; only the lead calls the function.

        Raises:
            RunError: in the others, where the function failed. In the lead its own error goes on.
        """
        if self.count == 1:
            return find_out()
        if not self.is_lead:
            text = _broadcast_text("")
            if text == "":
                raise RunError(_ENDED, _SEE)
            return json.loads(text)
        try:
            found = find_out()
        except BaseException:
            _broadcast_text("")
            raise
        _broadcast_text(json.dumps(found))
        return found

    def led(self, act: Callable[[], Any]) -> Any:
        """What the function gives in the lead, which alone calls it; None in the others.

        Raises:
            RunError: in the others, where it failed. In the lead its own error goes on.
        """
        found = []
        self.told(lambda: found.append(act()))
        return found[0] if self.is_lead else None

    def agree(self, number: int, flag: bool) -> Agreed:
        """The lead's number, and whether any process raised its flag."""
        if self.count == 1:
            return Agreed(number, flag)
        from jax.experimental import multihost_utils

        every = multihost_utils.process_allgather(np.array([number, flag], np.int32))  # [count, 2]
        return Agreed(int(every[0, 0]), bool(every[:, 1].any()))

    def gathered(self, tree: Any) -> Any:
        """Copies of the arrays of a state, whole and on the host, keys as their words; None in all but the lead.

        One leaf after the other: on the devices there is never more than one that is whole.
        """
        whole = jax.tree.map(lambda leaf: _whole(trees.key_words(leaf)), tree)
        return whole if self.is_lead else None

    def spread(self, tree: Any, template: Any) -> Any:
        """What the lead holds, placed as the template says; the others give anything.

        Args:
            tree: in the lead arrays in the structure of the template.
            template: a pytree of jax.ShapeDtypeStruct with shardings.
        """
        if self.count == 1:
            return jax.tree.map(lambda leaf, shape: jax.device_put(leaf, shape.sharding), tree, template)
        shapes, structure = jax.tree.flatten(template)
        leaves = jax.tree.leaves(tree) if self.is_lead else [None] * len(shapes)
        placed = [_spread(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        return jax.tree.unflatten(structure, placed)


def local(tree: Any) -> Any:
    """Arrays that every device holds whole, as they lie on the first device of this process."""
    return jax.tree.map(lambda x: x.addressable_data(0) if len(x.sharding.device_set) > 1 else x, tree)


def join(hardware: HardwareConfig, logs: LoggingConfig, *, compile_cache: bool) -> Team:
    """Meets the other processes of the run, if the configuration speaks of any. Before anything starts a JAX backend.

    Where a program has met them by itself (`jax.distributed.initialize`), they are those.

    Raises:
        ConfigError: there is nothing to find: no cluster, or a coordinator that does not answer.
    """
    is_met = jax.distributed.is_initialized()
    if not (hardware.distributed or hardware.coordinator_address or is_met):
        return Team()
    devices.prepare(hardware, logs, compile_cache=compile_cache)
    if not is_met:
        try:
            jax.distributed.initialize(hardware.coordinator_address, hardware.num_processes, hardware.process_id)
        except (ValueError, RuntimeError) as error:
            raise _not_met(hardware, error) from error
    return Team(jax.process_index(), jax.process_count())


def _not_met(hardware: HardwareConfig, error: Exception) -> ConfigError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if hardware.coordinator_address is None:
        return ConfigError(
            f"hardware.distributed: no cluster is found ({reason})",
            "give --coordinator-address HOST:PORT --num-processes N --process-id I to each process",
        )
    return ConfigError(
        f"hardware.coordinator_address: process {hardware.process_id} cannot meet the others at"
        f" {hardware.coordinator_address} ({reason})",
        "start all processes within five minutes, process 0 on that host, its port free and open to the others",
    )


def _broadcast_text(text: str) -> str:
    from jax.experimental import multihost_utils

    encoded = np.frombuffer(text.encode(), np.uint8)
    length = int(multihost_utils.broadcast_one_to_all(np.int32(encoded.size)))
    if length == 0:
        return ""
    given = encoded if jax.process_index() == 0 else np.zeros(length, np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(given), np.uint8)).decode()


def _whole(array: jax.Array) -> np.ndarray:
    """A copy on the host: on CPU NumPy would look into an array that is donated next."""
    if array.is_fully_replicated:
        return np.array(array.addressable_data(0))
    if array.is_fully_addressable:
        return np.array(array)
    from jax.experimental import multihost_utils

    return np.array(multihost_utils.process_allgather(array, tiled=True))


def _spread(leaf: Any, shape: jax.ShapeDtypeStruct) -> jax.Array:
    from jax.experimental import multihost_utils

    stored = jax.eval_shape(trees.key_words, shape)
    given = np.zeros(stored.shape, stored.dtype) if leaf is None else np.asarray(trees.key_words(leaf))
    whole = np.asarray(multihost_utils.broadcast_one_to_all(given))
    if not trees.is_key(shape):
        return jax.make_array_from_callback(whole.shape, shape.sharding, lambda index: whole[index])
    wrapped = jax.jit(jax.random.wrap_key_data, out_shardings=shape.sharding)
    placed: jax.Array = wrapped(whole)
    return placed
