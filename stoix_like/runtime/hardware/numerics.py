"""What the bits of a result may depend on beside its program and its inputs."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import jax

from stoix_like.runtime.console.installation import versions

_VERSIONS = ("stoix_like", "commit", "jax", "jaxlib")
_CPU_INFO = Path("/proc/cpuinfo")


def numerics() -> dict[str, str]:
    """{name: text} of versions, and of the kind of device; where all are the same, a program repeats its results.

    An empty `processor` is an unknown one, which may be another one than an unknown one elsewhere.

    On CPUs, XLA compiles for what the processor can do, and sums are divided among threads.
    """
    device, known = jax.devices()[0], versions()
    found = {name: known.get(name, "") for name in _VERSIONS}
    found |= {"device": device.device_kind, "runtime": device.client.platform_version}
    found |= {"xla_flags": os.environ.get("XLA_FLAGS", "")}
    found["matmul_precision"] = str(jax.config.jax_default_matmul_precision)  # type: ignore[attr-defined]
    if device.platform == "cpu":
        found |= {"processor": _processor(), "threads": str(_num_threads())}
    return found


def _processor() -> str:
    """The processor's name and a hash of its instruction sets; empty where the system does not say."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    said = dict[str, str]()
    for name, _, value in (line.partition(":") for line in lines):
        said.setdefault(name.strip(), value.strip())
    name = said.get("model name", said.get("CPU part", ""))
    instructions = said.get("flags", said.get("Features", ""))
    return f"{name} {hashlib.sha256(instructions.encode()).hexdigest()[:8]}" if name and instructions else ""


def _num_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
