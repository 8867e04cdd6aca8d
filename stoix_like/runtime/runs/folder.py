"""The folder of a run: its name, its creation with a lock, and the algorithm it records."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.config.checks.combinations import RUN_NAME_RULE, is_run_name
from stoix_like.errors import CheckpointError, ConfigError, RunError, StorageError
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.console.spelling import command_line, training_command
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.storage.atomic import atomic_write_json, atomic_write_text
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.runtime.storage.os_errors import words_of

_ELSEWHERE = "choose another folder with --save-dir"
STUDY_FILE = "study.db"  # marks the folder of a sweep


def new_path(save_dir: str, algorithm: str, config: Any) -> Path:
    """`<save_dir>/<algorithm>-<task>-<local time>-s<seed>`, a new run's. `create_run` appends a number if it exists."""
    task, now = config.environment.task_id.replace("/", "_"), time.strftime("%Y%m%d-%H%M%S")
    return Path(save_dir) / f"{algorithm}-{task}-{now}-s{config.architecture.seed}"


def run_path(save_dir: str, name: str) -> Path:
    """The folder of a new run; nothing is created. Raises ConfigError if it exists or the name is not valid."""
    if not is_run_name(name):
        raise ConfigError(f"checkpointing.run_name: {name!r} cannot name a run", RUN_NAME_RULE)
    path = Path(save_dir) / name
    if path.exists():
        hint = "choose another --run-name"
        if any(found.name.isdecimal() for found in (path / "checkpoints").glob("*")):
            hint += f", or continue it: --resume {path}"
        elif (path / "config.yaml").is_file() and not (path / STUDY_FILE).is_file():
            hint += "; it is a run without a checkpoint: nothing of it can be continued"
        raise ConfigError(f"checkpointing.run_name: {path} exists already", hint)
    return path


def display_name(run: Path) -> str:
    """The name of a run in dashboards: `<folder>`, or `<sweep>/<folder>` for a trial of a sweep."""
    run = run.absolute()
    return f"{run.parent.name}/{run.name}" if (run.parent / STUDY_FILE).is_file() else run.name


def check_algorithm(path: Path, theirs: str, ours: str) -> None:
    """Raises CheckpointError if the algorithm of a run differs from that of the command that resumes it."""
    if theirs != ours:
        raise CheckpointError(
            f"{path} is a run of {algorithm_title(theirs)}, not of {algorithm_title(ours)}",
            command_line(*training_command(theirs), "--resume", str(path)),
        )


def recorded_algorithm(path: Path, otherwise: str) -> str:
    """The algorithm in the run's versions.json, or `otherwise` if the file cannot be read."""
    try:
        return str(json.loads((path / "versions.json").read_text(encoding="utf-8"))["algorithm"])
    except (OSError, ValueError, KeyError, TypeError):
        return otherwise


class NewRun(NamedTuple):
    """A new run folder, with what is needed to remove it if the run cannot start."""

    path: Path
    lock: RunLock
    latest_before: str | None  # previous target of the link `latest`
    created_parents: list[Path]  # innermost first

    def discard(self) -> None:
        """Removes the folder and its contents, and reverts what `create_run` changed around it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.lock.close()
        link = self.path.parent / "latest"
        with contextlib.suppress(OSError):  # no link
            if str(link.readlink()) == self.path.name:
                link.unlink()
                if self.latest_before is not None and (link.parent / self.latest_before).exists():
                    _point_latest(link, self.latest_before)
        with contextlib.suppress(OSError):  # the folder holds another run
            for folder in self.created_parents:
                folder.rmdir()


def create_run(path: Path, config_yaml: str, facts: dict[str, Any], *, numbered: bool = False) -> NewRun:
    """The new run folder with config.yaml and versions.json, locked. The link `latest` next to it points to it.

    `facts` are added to `versions()`. If the path exists, `numbered` makes `<path>-2`, `-3`, ...; else it is an error.
    """
    created_parents = [folder for folder in path.parents if not folder.exists()]
    path = _make_folder(path, numbered)
    link = path.parent / "latest"
    try:
        lock = RunLock(path)
    except RunError:
        shutil.rmtree(path, ignore_errors=True)
        raise
    new = NewRun(path, lock, os.readlink(link) if link.is_symlink() else None, created_parents)
    try:
        atomic_write_json(path / "versions.json", versions() | facts)
        atomic_write_text(path / "config.yaml", config_yaml)
    except OSError as error:
        new.discard()
        raise StorageError(f"cannot write {path}: {words_of(error)}", _ELSEWHERE) from error
    _point_latest(link, path.name)
    return new


def _make_folder(path: Path, numbered: bool) -> Path:
    """The created folder. `mkdir` decides between two runs that start in the same second."""
    for count in itertools.count(1):
        candidate = path if count == 1 else path.with_name(f"{path.name}-{count}")
        try:
            candidate.mkdir(parents=True)
            return candidate
        except FileExistsError as error:
            if numbered and os.path.lexists(candidate):  # False if a dangling link above it is the cause
                continue
            what = f"cannot make {path}: something of that name exists"
            raise RunError(what, "choose another --run-name") from error
        except OSError as error:
            raise StorageError(f"cannot make {path}: {words_of(error)}", _ELSEWHERE) from error
    raise AssertionError("unreachable: the count has no end")


def _point_latest(link: Path, name: str) -> None:
    temporary = link.with_name(f".latest.{os.getpid()}")
    try:
        temporary.symlink_to(name)
        temporary.replace(link)
    except OSError:  # a file system without links, or a folder named latest: there is no link then
        temporary.unlink(missing_ok=True)
