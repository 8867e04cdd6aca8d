"""Freed memory goes back to the system.

Orbax starts threads for every checkpoint, and each leaves pages that are partly used in an arena of glibc's. Small
runs grow by some 30 MB over their first hundred checkpoints until the arenas are full. Giving back after each leaves
46 KiB per checkpoint, part of which tensorstore leaks (docs/log.md).
"""

from __future__ import annotations

import ctypes
import sys


def trim_memory() -> bool:
    """Returns unused pages of every arena to the system. Whether the C library can do so: glibc's can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return False
    trim(0)
    return True
