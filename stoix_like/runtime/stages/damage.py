"""An output of a stage that is not what its manifest names: it is set aside, and its stage runs again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.manifest import Manifest

_REMEDY = "look after the disk and the memory of this machine; or begin the next one: --new-iteration"


class DamagedOutputError(CheckpointError):
    """Files that a stage made are missing, damaged, or not what they should be.

    Args:
        stage: that makes them again.
        paths: the files.
        what: is wrong.
        remedy: if they come out so again.
    """

    def __init__(self, stage: str, paths: Sequence[Path], what: str, remedy: str = _REMEDY) -> None:
        super().__init__(what, f"the stage {stage} of its iteration makes it again")
        self.stage, self.paths, self.remedy = stage, tuple(paths), remedy


def read_output(folder: Path, manifest: Manifest, name: str) -> dict[str, np.ndarray]:
    """The arrays of an output. Raises DamagedOutputError if they are not what the manifest of the stage names."""
    try:
        return read_arrays(folder / name, manifest.outputs[name])
    except CheckpointError as error:
        raise DamagedOutputError(manifest.stage, [folder / name], error.what) from error
