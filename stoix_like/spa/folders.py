"""Where a pipeline is: `runs/spa/NAME`, with a folder for each stage, and which stages it takes from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.runs.pipeline_files import RUN
from stoix_like.runtime.stages.manifest import FILE, read_manifest
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.signed_json import SignedJsonError, read_signed, signed_text
from stoix_like.spa.arms import STAGE_NAMES

CONFIG, SOURCES, LOCK, BEGUN = "config.yaml", "sources.json", ".lock", "begun.json"
REPORT = "report.html"


class Layout(NamedTuple):
    """The folder of a pipeline."""

    root: Path

    @property
    def config(self) -> Path:
        """The configuration with which it was run last, and not refused."""
        return self.root / CONFIG

    @property
    def report(self) -> Path:
        """The page of its report."""
        return self.root / REPORT

    def stage(self, name: str) -> Path:
        """The folder of a stage of its own."""
        return self.root / name

    def run(self, name: str) -> Path:
        """The run of a stage that trains."""
        return self.root / name / RUN


def layout_of(save_dir: str, name: str) -> Layout:
    """The folder of a pipeline by its name. Raises ConfigError for a name that is none of one folder."""
    if not name or name.startswith((".", "-")) or "/" in name or "\\" in name or not name.isprintable():
        raise ConfigError(f"spa: '{name[:80]}' is no name of a pipeline", "give a name such as lake_0, not a path")
    return Layout(Path(save_dir) / name)


class Source(NamedTuple):
    """A stage that another pipeline has done."""

    folder: Path
    is_named: bool  # by its own path; else its pipeline is


def find_sources(texts: Sequence[str]) -> dict[str, Source]:
    """{stage: where it is} of the paths of `--from`: of a pipeline all stages that are done, or one stage of one.

    What a pipeline has taken from elsewhere counts as its own.

    Raises CheckpointError for a path without stages, a stage that is not done, or one that is given twice.
    """
    found: dict[str, Source] = {}
    for text in texts:
        path = Path(text)
        own = {name: path / name for name in STAGE_NAMES if (path / name / FILE).is_file()}
        folders = {name: folder for name, folder in read_sources(Layout(path)).items() if (folder / FILE).is_file()}
        stages = {name: Source(folder, False) for name, folder in (folders | own).items()}
        if (manifest := read_manifest(path)) is not None:
            stages = {manifest.stage: Source(path, True)}
        if not stages:
            what = f"--from: {path} has no stage that is done" if path.is_dir() else f"--from: no folder {path}"
            raise CheckpointError(what, "give a pipeline, such as runs/spa/lake_0, or a stage of one that is done")
        for name, source in stages.items():
            if name in found and found[name].folder.resolve() != source.folder.resolve():
                what = f"--from: the stage {name} is in {found[name].folder} and in {source.folder}"
                raise CheckpointError(what, "give one of them")
            found[name] = source
    return found


def read_sources(layout: Layout) -> dict[str, Path]:
    """{stage: its folder elsewhere} that the pipeline was begun with. Raises CheckpointError if they are damaged."""
    path = layout.root / SOURCES
    try:
        body = read_signed(path, ("stages",))
    except SignedJsonError as error:
        if error.is_missing:
            return {}
        raise CheckpointError(f"{path} cannot be used: {error.reason}", "put it back as it was written") from error
    return {name: Path(os.path.normpath(layout.root / text)) for name, text in body["stages"].items()}


def write_sources(layout: Layout, sources: dict[str, Path]) -> None:
    """Notes the stages that are taken from elsewhere, by paths from the pipeline's folder."""
    texts: dict[str, Any] = {name: os.path.relpath(folder, layout.root) for name, folder in sources.items()}
    atomic_write_text(layout.root / SOURCES, signed_text({"stages": texts}))
