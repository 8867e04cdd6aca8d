"""One folder per run: its names, its lock, and files that are written whole or not at all."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import platform
import re
import shutil
import time
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from stoix_like.errors import CheckpointError, ConfigError, RunError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]*")
_VERSIONED = ("stoix_like", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "jumanji", "distrax", "numpy")


def write_atomically(path: Path, text: str) -> None:
    """The text at the path, through a temporary file beside it and a rename: readers never see half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def new_name(algorithm: str, task_id: str, seed: int) -> str:
    """`<algorithm>-<task>-<timestamp>-s<seed>`, local time."""
    return f"{algorithm}-{task_id.replace('/', '_')}-{time.strftime('%Y%m%d-%H%M%S')}-s{seed}"


def new_path(save_dir: str, algorithm: str, config: Any) -> Path:
    """The folder of a new run without a name of its own; a number is added if one was begun in the same second."""
    name = new_name(algorithm, config.environment.task_id, config.architecture.seed)
    paths = (Path(save_dir) / (name if count == 1 else f"{name}-{count}") for count in itertools.count(1))
    return next(path for path in paths if not path.exists())


def run_path(save_dir: str, name: str) -> Path:
    """The folder of a new run. Nothing is made yet.

    Raises:
        ConfigError: a name that is not one plain folder name, or that exists.
    """
    if not _NAME.fullmatch(name) or name == "latest":
        raise ConfigError(
            f"checkpointing.run_name: '{name}' cannot name a run folder",
            "use letters, digits and . _ = + -, begin with a letter or digit, and not the word latest",
        )
    path = Path(save_dir) / name
    if path.exists():
        raise ConfigError(
            f"checkpointing.run_name: {path} exists already",
            f"choose another --run-name, or continue it: --resume {path}",
        )
    return path


def find_run(text: str, save_dir: str = "runs") -> Path:
    """The folder of an existing run: a path, a name under save_dir, or `latest`.

    Raises:
        CheckpointError: there is no such run; the hint names the runs there are.
    """
    candidates = [Path(text), Path(save_dir) / text]
    for path in candidates:
        if (path / "config.yaml").is_file():
            return path.parent / path.readlink() if path.is_symlink() else path
    folder = Path(save_dir) if Path(save_dir).is_dir() else Path(text).parent
    runs = sorted(p.parent for p in folder.glob("*/config.yaml") if not p.parent.is_symlink())
    known = ", ".join(str(p) for p in runs[-5:])
    raise CheckpointError(f"no run at {text}", f"runs there are: {known}" if known else "train one first: make train")


class RunLock:
    """The right to write a run folder, held until closed or until the process ends, however it ends.

    The lock is the kernel's (flock), so a killed process leaves nothing behind that would have to be cleaned up.
    """

    def __init__(self, run_dir: Path) -> None:
        self._file: IO[str] = (run_dir / ".lock").open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise RunError(
                f"another process is writing {run_dir}", "wait for it to end, or start a run under another --run-name"
            ) from error

    def close(self) -> None:
        self._file.close()


def create(path: Path, config_yaml: str, facts: dict[str, Any]) -> RunLock:
    """The new run folder with config.yaml and versions.json, locked; `latest` beside it points to it.

    Raises:
        RunError: the folder cannot be written.
    """
    try:
        path.mkdir(parents=True)
    except FileExistsError as error:
        raise RunError(f"cannot make {path}: something of that name is there", "choose another --run-name") from error
    except OSError as error:
        raise RunError(f"cannot make {path}: {error.strerror}", "choose another folder with --save-dir") from error
    lock = RunLock(path)
    try:
        write_atomically(path / "versions.json", json.dumps(versions() | facts, indent=2) + "\n")
        write_atomically(path / "config.yaml", config_yaml)
    except OSError as error:
        lock.close()
        shutil.rmtree(path, ignore_errors=True)  # ours, and empty of anything of worth
        raise RunError(f"cannot write {path}: {error.strerror}", "choose another folder with --save-dir") from error
    _point_latest(path)
    return lock


def _point_latest(path: Path) -> None:
    link, temporary = path.parent / "latest", path.parent / f".latest.{os.getpid()}"
    try:
        temporary.symlink_to(path.name)
        temporary.replace(link)
    except OSError:  # a file system without links, or a folder named latest: only the convenience is lost
        temporary.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide numbers."""
    found = {"python": platform.python_version(), "machine": platform.platform()}
    for package in _VERSIONED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
