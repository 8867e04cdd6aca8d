"""Which run, which checkpoint and which configuration a text or a path means. Imports no orbax."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stoix_like.config.checks.values import nearest
from stoix_like.errors import CheckpointError, NoRunError, RunError
from stoix_like.runtime.console import messages
from stoix_like.runtime.console.spelling import command_line, usage
from stoix_like.runtime.loading.strict_yaml import read_sections
from stoix_like.runtime.runs.folder import STUDY_FILE
from stoix_like.runtime.runs.pipeline_files import (
    CHAMPION,
    ITERATIONS,
    TRAIN,
    champion_file,
    check_candidate,
    is_of_pipeline,
    runs_of_stages,
)
from stoix_like.runtime.storage import digests
from stoix_like.runtime.weights.parameters import PARAMETERS, SUFFIX

_MOST_NAMED = 5  # runs in a hint


def _run_or_none(text: str, save_dir: str = "runs") -> Path | None:
    """`find_run`, or None if there is no such run."""
    for path in (Path(text), Path(save_dir) / text):
        if (path / "config.yaml").is_file() and not runs_of_stages(path):
            return path.parent / path.readlink() if path.is_symlink() else path
    return None


def find_run(text: str, save_dir: str = "runs") -> Path:
    """The folder of an existing run: a path, a name under save_dir, or `latest`.

    Raises CheckpointError if there is no such run; the hint names the runs there are.
    """
    if (run := _run_or_none(text, save_dir)) is not None:
        return run
    for path in (Path(text), Path(save_dir) / text):
        if (path / STUDY_FILE).is_file():
            raise CheckpointError(f"{path} is a sweep, not a run", f"its runs are {path}/trial-0000 and so on")
        if remedy := missing_config_hint(path):
            raise CheckpointError(f"{path} has no config.yaml", remedy)
        if error := _pipeline_error(path):
            raise error
    raise no_run_at(text, Path(save_dir) if Path(save_dir).is_dir() else Path(text).parent)


def _pipeline_error(path: Path) -> CheckpointError | None:
    """The error for the folder of a pipeline, which is no run; None for others."""
    if stages := runs_of_stages(path):
        return CheckpointError(f"{path} is a pipeline of SPA, not a run", f"its runs are {', '.join(map(str, stages))}")
    if (path / CHAMPION).is_file():
        run, candidates = path / TRAIN, f"its candidates: {command_line('ratings', '--lineage', str(path))}"
        hint = f"its run is {run}; {candidates}" if (run / "config.yaml").is_file() else candidates
        return CheckpointError(f"{path} is a self-play pipeline, not a run", hint)
    if pipelines := sorted(pointer.parent for pointer in path.glob(f"*/{CHAMPION}")):
        hint = f"their runs are {', '.join(str(one / TRAIN) for one in pipelines[:_MOST_NAMED])}"
        hint += f"; candidates: {command_line('ratings', '--lineage', str(pipelines[0]))}"
        return CheckpointError(f"{path} is a folder of self-play pipelines, not a run", hint)
    pipeline = path.parent.parent
    if path.parent.name != ITERATIONS or not (pipeline / CHAMPION).is_file():
        return None
    what = "has no parameters: it is not trained yet, or they were removed" if path.is_dir() else "does not exist"
    hint = f"an iteration that has some has the file {TRAIN}/{PARAMETERS}; {pipeline} is its champion"
    return CheckpointError(f"{path} {what}", hint)


def no_run_at(text: str, folder: Path) -> NoRunError:
    """The error that names the nearest run in the folder, and the newest ones."""
    runs = [p.parent for p in folder.glob("*/config.yaml") if not p.parent.is_symlink()]
    newest = sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True)
    more = f" and {len(newest) - _MOST_NAMED} more" if len(newest) > _MOST_NAMED else ""
    listed = f"existing runs: {', '.join(map(str, newest[:_MOST_NAMED]))}{more}" if runs else ""
    near = nearest(Path(text).name, [p.name for p in runs])
    return NoRunError(text, near, listed, f"train one first: {usage('train-ppo')}")


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


def find_saved(text: str, save_dir: str = "runs") -> Path:
    """The file of published parameters at this path or in this folder, or else the run of `find_run`.

    Of a file and a run of one name, it is the run. In the folder of a self-play pipeline, which may be a name under
    save_dir too, it is the champion's file; in that of one of its iterations it is the candidate's. Raises
    CheckpointError if one of these is not what the pointer or the manifest names.
    """
    file = Path(text) if is_parameters(Path(text)) else _parameters_in(Path(text))
    if not file.is_file() and not is_parameters(Path(text)):
        file = _parameters_in(Path(save_dir) / text)
    is_published = _run_or_none(text, save_dir) is None and (is_parameters(Path(text)) or file.is_file())
    if not is_published:
        return find_run(text, save_dir)
    check_candidate(file)
    return file


def find_source(text: str, save_dir: str = "runs") -> Path:
    """What parameters are loaded from: `find_saved`, or else a folder at this path, such as one checkpoint of a run."""
    try:
        return find_saved(text, save_dir)
    except CheckpointError:
        if not Path(text).is_dir() or is_of_pipeline(Path(text)):
            raise
        return Path(text)


def _parameters_in(folder: Path) -> Path:
    """Where published parameters are, if the folder has some: its own, the champion's, or those of an iteration."""
    if (pointer := folder / CHAMPION).is_file():
        return champion_file(pointer)
    own, trained = folder / PARAMETERS, folder / TRAIN / PARAMETERS
    return trained if trained.is_file() and not own.is_file() else own


def is_parameters(path: Path) -> bool:
    """Whether it is the path of published parameters, not of a folder."""
    return path.suffix == SUFFIX and not path.is_dir()


def checkpoint_updates(folder: Path) -> list[int]:
    """The updates of the complete checkpoints in a folder, in order. Raises OSError if it cannot be listed."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())


def find_checkpoint(path: Path, checkpoint: str | None = None) -> tuple[Path, int | None]:
    """(folder of checkpoints, update or None for the last one there) of `best`, `latest` or an update of a run.

    Without a name it is the best, or else the last; `path` may then be a checkpoint, or a folder of checkpoints. Raises
    CheckpointError if the name is none of these, or if no checkpoint is the best. The store finds out about others.
    """
    folder, best = path / "checkpoints", path / "checkpoints" / "best"
    if checkpoint is None and path.name.isdecimal() and (path / "state").is_dir():
        return path.parent, int(path.name)
    if checkpoint is None:
        for place in filter(_has_checkpoints, (best, folder, path)):
            return place, None
        raise CheckpointError(f"no checkpoint in {path}", "give a run folder, for example runs/<name>")
    if checkpoint == "latest" or checkpoint.isdecimal():
        return folder, None if checkpoint == "latest" else int(checkpoint)
    if checkpoint != "best":
        raise CheckpointError(f"no checkpoint is named '{checkpoint}'", "use best, latest, or the number of an update")
    if _has_checkpoints(folder) and not _has_checkpoints(best):
        raise CheckpointError(f"{path} has no best checkpoint: it was not evaluated yet", "use --checkpoint latest")
    return (best if _has_checkpoints(best) else folder), None


def _has_checkpoints(folder: Path) -> bool:
    return folder.is_dir() and bool(checkpoint_updates(folder))


def read_config(path: Path) -> dict[str, Any]:
    """{section: {leaf: value}} of a run, as stored: of its last checkpoint, else of config.yaml; empty without either.

    The file alone would not do: a run that is resumed with other flags rewrites it before it trains. A checkpoint that
    is damaged, or was just removed by its run, is passed over. Raises RunError if config.yaml is needed and unreadable.
    """
    folder, file = path / "checkpoints", path / "config.yaml"
    for update in reversed(checkpoint_updates(folder) if folder.is_dir() else []):
        with contextlib.suppress(CheckpointError):
            return dict(digests.read_meta(folder / str(update))["config"])
    if not file.is_file():
        return {}
    if (sections := read_sections(file)) is None:
        remedy = missing_config_hint(path)
        raise RunError(f"{file} is not readable YAML", f"{remedy}, or leave this run out" if remedy else "leave it out")
    return sections
