"""The persistent compilation cache of JAX: where it is, and the repair of truncated entries."""

from __future__ import annotations

import os
import re
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import jax

from stoix_like.runtime.console import messages

_FAILED = re.compile(
    r"Error (?P<what>reading|writing) persistent compilation cache entry for '(?P<program>[^']+)'[^:]*: (?P<why>.*)",
    re.DOTALL,
)
#: An incomplete entry is read again after this time, because another process may be writing it.
_SECONDS_TO_WRITE = 1.0


def enable() -> None:
    """Enables the cache in `JAX_COMPILATION_CACHE_DIR`, else in `stoix_like/xla` in the user's cache folder.

    It holds programs that take over 0.2 s to compile, or over `JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS`.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache_home = os.environ.get("XDG_CACHE_HOME")
        try:
            base = Path(cache_home) if cache_home else Path.home() / ".cache"
        except RuntimeError:  # no HOME and no entry in passwd, as in some containers: no cache
            return
        jax.config.update("jax_compilation_cache_dir", str(base / "stoix_like" / "xla"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    if messages.is_cli():
        _repair_unreadable_entries()


def remove_incomplete_entries(folder: Path, program: str) -> int:
    """The number of entries of a program that were incomplete and have been removed.

    Where zstandard is installed, JAX compresses with it. Such an entry counts as incomplete too, and is compiled again.
    """
    name = re.compile(rf"{re.escape(program)}-[0-9a-f]{{64}}-cache")
    incomplete = [path for path in folder.glob("*-cache") if name.fullmatch(path.name) and not _is_complete(path)]
    if incomplete:
        time.sleep(_SECONDS_TO_WRITE)
        incomplete = [path for path in incomplete if not _is_complete(path)]
    for path in incomplete:
        path.unlink(missing_ok=True)
    return len(incomplete)


def _is_complete(path: Path) -> bool:
    try:
        zlib.decompress(path.read_bytes())
    except (zlib.error, OSError):
        return False
    return True


def _repair_unreadable_entries() -> None:
    """Removes truncated entries when JAX warns of them, so that JAX writes them again.

    JAX writes entries in place and overwrites none. If a kill or a full disk truncates an entry, JAX warns and compiles
    at every start. It warns before it compiles, so an entry that is removed then is written again. An entry that was
    read while another process wrote it is complete a moment later; it is left alone, without a message.
    """
    original = warnings.showwarning
    if getattr(original, "repairs_compile_cache", False):
        return
    is_noted = False

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        nonlocal is_noted
        failure = _FAILED.match(str(message))
        folder: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # made at run time
        if failure is None or folder is None:
            original(message, *where, **more)
        elif failure["what"] == "reading" and remove_incomplete_entries(Path(folder), failure["program"]):
            messages.print_to_stderr(f"note: {failure['program']} is compiled again: its cache entry was truncated")
        elif failure["what"] == "reading" and "decompress" in failure["why"]:
            return
        elif not is_noted:
            is_noted = True
            reason = " ".join(failure["why"].split())
            messages.print_to_stderr(
                f"note: the compile cache {folder} cannot be used ({reason}); every start compiles"
            )

    show.repairs_compile_cache = True  # type: ignore[attr-defined]
    warnings.showwarning = show
