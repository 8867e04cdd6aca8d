"""Finds runs and files of parameters by a path or a name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stoix_like.config.values import nearest
from stoix_like.errors import CheckpointError
from stoix_like.runtime.console import messages
from stoix_like.runtime.console.spelling import usage
from stoix_like.runtime.runs.folder import STUDY_FILE
from stoix_like.runtime.weights.parameters import PARAMETERS, SUFFIX


def find_run_or_none(text: str, save_dir: str = "runs") -> Path | None:
    """`find_run`, or None if there is no such run."""
    for path in (Path(text), Path(save_dir) / text):
        if (path / "config.yaml").is_file():
            return path.parent / path.readlink() if path.is_symlink() else path
    return None


def find_run(text: str, save_dir: str = "runs") -> Path:
    """The folder of an existing run: a path, a name under save_dir, or `latest`.

    Raises:
        CheckpointError: there is no such run; the hint names the runs there are.
    """
    if (run := find_run_or_none(text, save_dir)) is not None:
        return run
    for path in (Path(text), Path(save_dir) / text):
        if (path / STUDY_FILE).is_file():
            raise CheckpointError(f"{path} is a sweep, not a run", f"its runs are {path}/trial-0000 and so on")
        if remedy := missing_config_hint(path):
            raise CheckpointError(f"{path} has no config.yaml", remedy)
    folder = Path(save_dir) if Path(save_dir).is_dir() else Path(text).parent
    runs = [p.parent for p in folder.glob("*/config.yaml") if not p.parent.is_symlink()]
    near = nearest(Path(text).name, [p.name for p in runs])
    raise CheckpointError(f"no run at {text}{near}", runs_hint(runs) or f"train one first: {usage('train-ppo')}")


def find_runs(texts: Sequence[str]) -> list[Path]:
    """`find_run` of each text, without duplicates. Paths that are not runs, as in `runs/*`, are skipped with a note.

    Raises CheckpointError if a path does not exist, or if none is a run.
    """
    runs: dict[Path, Path] = {}
    failure: CheckpointError | None = None
    for text in texts:
        try:
            path = find_run(text)
        except CheckpointError as error:
            if len(texts) == 1 or not Path(text).exists():
                raise
            failure = error
            messages.print_to_stderr(f"note: {text} is skipped: it is not a run")
        else:
            runs.setdefault(path.resolve(), path)
    if not runs and failure is not None:
        raise failure
    return list(runs.values())


def missing_config_hint(run: Path) -> str | None:
    """A hint to restore a lost config.yaml from the newest checkpoint; None if there is no checkpoint."""
    metas = sorted((run / "checkpoints").glob("*/meta.json"), key=lambda path: path.stat().st_mtime)
    return f"write it again from the value of 'config' in {metas[-1]}; JSON is YAML" if metas else None


def runs_hint(runs: Sequence[Path], most: int = 5) -> str:
    """`existing runs: ...`, newest first, or an empty string."""
    newest = sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True)
    more = f" and {len(newest) - most} more" if len(newest) > most else ""
    return f"existing runs: {', '.join(map(str, newest[:most]))}{more}" if newest else ""


def find_parameters(text: str) -> Path | None:
    """The file of parameters at this path, or in this folder; None if there is none, or if the text names a run."""
    if find_run_or_none(text) is not None:
        return None
    path = Path(text)
    if not path.is_dir():
        return path if path.suffix == SUFFIX else None
    return path / PARAMETERS if (path / PARAMETERS).is_file() else None
