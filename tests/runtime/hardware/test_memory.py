"""Memory that is free inside the process, and memory that the system has back."""

import sys
from pathlib import Path

import numpy as np
import pytest

from stoix_like.runtime.hardware.memory import trim_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc_trim")
SIZE = 64 * 1024  # below what malloc takes from the system piece by piece


def _resident_mib():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1024


def test_freed_pages_go_back_though_there_are_used_ones_behind_them():
    blocks = [np.ones(SIZE // 8) for _ in range(2048)]
    kept = blocks[:: len(blocks) // 16] + blocks[-1:]
    del blocks
    before = _resident_mib()
    assert trim_memory()
    assert before - _resident_mib() > 64.0
    assert all(block.sum() == SIZE // 8 for block in kept)


def test_a_c_library_without_it_is_told(monkeypatch):
    monkeypatch.setattr("stoix_like.runtime.hardware.memory.ctypes.CDLL", lambda name: object())
    assert trim_memory() is False
