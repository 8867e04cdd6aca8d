"""Whether a state fits into the memory of its devices, asked before it is made.

An allocation that is too large fails late on CPUs: the system grants it, and ends the process when it is used.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import jax

from stoix_like.config.sections.roles import leaf_roles
from stoix_like.errors import RunError

GIGABYTE = 1e9
#: Leaves that the size of a state grows with.
_SIZES = ("num_envs", "reset_pool_size", "replay_buffer_size", "hidden_dim", "num_layers", "num_seeds")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def require_memory(template: Any, config: Any) -> None:
    """Raises RunError if the devices of this process have less memory than a state of these shapes needs.

    Args:
        template: a NamedTuple of `jax.ShapeDtypeStruct` with shardings.
        config: of the run, whose leaves the hint names.
    """
    sizes = {name: num_bytes(getattr(template, name)) for name in template._fields}
    available = available_bytes(jax.tree.leaves(template)[0].sharding.addressable_devices)
    if available is None or (needed := sum(sizes.values())) <= available:
        return
    largest = max(sizes, key=lambda name: sizes[name])
    what = f"the state needs {_gigabytes(needed)}, of which {_gigabytes(sizes[largest])} are for {largest}"
    raise RunError(f"{what}, and there are {_gigabytes(available)}", size_hint(type(config)))


def size_hint(config_type: type) -> str:
    """Which flags of a configuration make a state smaller."""
    known = leaf_roles(config_type)
    flags = [f"--{name.replace('_', '-')}" for name in _SIZES if name in known]
    return f"lower {', '.join(flags[:-1])} or {flags[-1]}"


def num_bytes(template: Any) -> int:
    """Of arrays of these shapes, with all copies and parts that this process has on its devices."""
    return sum(_leaf_bytes(leaf) for leaf in jax.tree.leaves(template))


def _leaf_bytes(leaf: Any) -> int:
    shard: tuple[int, ...] = leaf.sharding.shard_shape(leaf.shape)
    return math.prod(shard) * int(leaf.dtype.itemsize) * len(leaf.sharding.addressable_devices)


def available_bytes(devices: Any) -> int | None:
    """What these devices of this process can hold together; None if their backend does not say."""
    if all(device.platform == "cpu" for device in devices):
        return host_bytes()
    total = 0
    for device in devices:
        stats: dict[str, int] = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        total += stats["bytes_limit"]
    return total


def host_bytes() -> int | None:
    """The memory of this machine, or of this container; None if the system does not say."""
    found = list[int]()
    try:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        found.append(int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError, AttributeError):  # no such name, no such file, or `max`
        pass
    return min((size for size in found if size > 0), default=None)


def _gigabytes(size: int) -> str:
    return f"{size / GIGABYTE:,.1f} GB"
