"""The folder in which JAX keeps compiled programs, so that the next process need not compile them."""

from __future__ import annotations

import os
import re
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from stoix_like.runtime.console import messages

_FAILED = re.compile(
    r"Error (?P<what>reading|writing) persistent compilation cache entry for '(?P<program>[^']+)'[^:]*: (?P<why>.*)",
    re.DOTALL,
)
#: An entry that is not whole is looked at again after this time: another process may just be writing it.
_SECONDS_TO_WRITE = 1.0


def enable() -> None:
    """`JAX_COMPILATION_CACHE_DIR`, else `stoix_like/xla` in the user's cache folder. For what takes over 0.2 s to
    compile, or over `JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS`.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        given = os.environ.get("XDG_CACHE_HOME")
        try:
            base = Path(given) if given else Path.home() / ".cache"
        except RuntimeError:  # no HOME, and a user id without an entry in passwd, as in containers: nowhere to keep it
            return
        jax.config.update("jax_compilation_cache_dir", str(base / "stoix_like" / "xla"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    if messages.is_cli():
        _mend_what_cannot_be_read()


def remove_incomplete_entries(folder: Path, program: str) -> int:
    """Removes the entries of a program that stay no whole stream, and says how many. (JAX takes zstandard where that is
    installed; what it packed counts as torn here, too: it is compiled once more.)
    """
    torn = [path for path in folder.glob("*-cache") if _is_of(path, program) and not _is_whole(path)]
    if torn:
        time.sleep(_SECONDS_TO_WRITE)
        torn = [path for path in torn if not _is_whole(path)]
    for path in torn:
        path.unlink(missing_ok=True)
    return len(torn)


def _is_of(path: Path, program: str) -> bool:
    return re.fullmatch(rf"{re.escape(program)}-[0-9a-f]{{64}}-cache", path.name) is not None


def _is_whole(path: Path) -> bool:
    try:
        zlib.decompress(path.read_bytes())
    except (zlib.error, OSError):
        return False
    return True


def _mend_what_cannot_be_read() -> None:
    """JAX writes entries in place. One that a kill or a full disk has torn would be warned of at every start from then
    on, and its program compiled at every start, since JAX overwrites none: it is removed when it is met, and JAX, which
    warns before it compiles, then writes it anew. One that was read while another process wrote it is whole a moment
    later, and there is nothing to tell.
    """
    shown = warnings.showwarning
    if not getattr(shown, "mends_the_compile_cache", False):
        warnings.showwarning = _showing(shown)


def _showing(shown: Callable[..., None]) -> Callable[..., None]:
    is_noted = False

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        nonlocal is_noted
        told = _FAILED.match(str(message))
        folder: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # made at run time
        if told is None or folder is None:
            shown(message, *where, **more)
        elif told["what"] == "reading" and remove_incomplete_entries(Path(folder), told["program"]):
            messages.print_to_stderr(
                f"note: {told['program']} is compiled anew; the compile cache held it half-written"
            )
        elif told["what"] == "reading" and "decompress" in told["why"]:
            return
        elif not is_noted:
            is_noted = True
            why = " ".join(told["why"].split())
            messages.print_to_stderr(f"note: the compile cache {folder} cannot be used ({why}); every start compiles")

    show.mends_the_compile_cache = True  # type: ignore[attr-defined]
    return show
