"""A pipeline is a tuple of stages. What is due is a function of that tuple and of the manifests on disk.

A stage is done if its manifest names what is there now, and its files are there. So any process goes on where another
one has stopped, and a stage whose inputs have changed is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from stoix_like.errors import RunError
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.runtime.stages.run import StageCall


class Stage(NamedTuple):
    """A stage of a pipeline.

    Attributes:
        name: of its folder.
        settings: the leaves of the configuration that it reads.
        inputs: (files of the stages) -> {name: hash} of what it reads. The stages before it are done.
        work: (pipeline, files of the stages, …) -> its manifest. It runs the stage with `run_stage`.
    """

    name: str
    settings: tuple[str, ...]
    inputs: Callable[[Any], Mapping[str, str]]
    work: Callable[..., Manifest]

    def call(self, files: StageFiles, values: Mapping[str, Any], **more: str) -> StageCall:
        """What the stage is asked to do: with these values of its settings, and with inputs that only it can name."""
        return StageCall(self.name, {**self.inputs(files), **more}, dict(values))


class StageFiles:
    """The manifests of stages, as they were when this was made.

    Args:
        root: whose folders are named after the stages.
        stages: of the pipeline, in their order.
        elsewhere: {stage: its folder} of those that another pipeline has done.
    """

    def __init__(
        self, root: Path, stages: Sequence[Stage], elsewhere: Mapping[str, Path] = MappingProxyType({})
    ) -> None:
        self.root, self.stages = root, {stage.name: stage for stage in stages}
        self.elsewhere = elsewhere
        self.manifests = {name: read_manifest(self.folder(name)) for name in self.stages}

    def folder(self, name: str) -> Path:
        """The folder of a stage."""
        return self.elsewhere.get(name, self.root / name)

    def find(self, name: str) -> Manifest | None:
        """The manifest of a stage; None if the stage is not done."""
        return self.manifests[name]

    def done(self, name: str) -> Manifest:
        """The manifest of a stage. Raises RunError if the stage is not done."""
        if (manifest := self.manifests[name]) is None:
            hint = "put it back where it was taken from" if name in self.elsewhere else "run the stages in their order"
            raise RunError(f"the stage {name} of {self.folder(name).parent} is not done", hint)
        return manifest

    def digest(self, name: str) -> str:
        """The digest of a manifest; empty if the stage is not done."""
        return "" if (manifest := self.manifests[name]) is None else manifest.digest


def first_due(stages: Sequence[Stage], files: StageFiles) -> Stage | None:
    """The first of some stages that is not done; None if all are. Raises CheckpointError if a file cannot be read."""
    return next((stage for stage in stages if not is_done(stage, files)), None)


def is_done(stage: Stage, files: StageFiles) -> bool:
    """Whether a stage is done with what is there now. Those before it are done."""
    manifest = files.find(stage.name)
    if manifest is None or any(manifest.inputs.get(name) != value for name, value in stage.inputs(files).items()):
        return False
    return all((files.folder(stage.name) / name).is_file() for name in manifest.outputs)
