"""What is in the folder of a pipeline: the runs of its stages, and of self-play its champion's file with its hash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stoix_like.errors import CheckpointError
from stoix_like.runtime.stages.hashes import array_hash
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.runtime.storage.signed_json import SignedJsonError, read_signed
from stoix_like.runtime.weights.parameters import PARAMETERS, stored_arrays

CHAMPION = "champion.json"  # in the folder of a pipeline, whose champion's parameters it names
TRAIN, PROMOTE, ITERATIONS = "train", "promote", "iterations"  # an iteration has its candidate in `train`
RUN = "run"  # in the folder of a stage of SPA
PUT_BACK = f"put it back, or copy {ITERATIONS}/N/{PROMOTE}/{CHAMPION} of the iteration N that was champion last"


def is_of_pipeline(folder: Path) -> bool:
    """Whether it is the folder of a pipeline, of one of its iterations, or of a candidate."""
    root = folder.resolve()
    iteration = root.parent if root.name == TRAIN else root
    is_iteration = iteration.parent.name == ITERATIONS and (iteration.parent.parent / CHAMPION).is_file()
    return is_iteration or (root / CHAMPION).is_file()


def runs_of_stages(folder: Path) -> list[Path]:
    """The runs of a pipeline of SPA, in the folders of its stages; none of another folder."""
    return sorted(file.parent for file in folder.glob(f"*/{RUN}/config.yaml"))


def champion_file(pointer: Path) -> Path:
    """The champion's parameter file.

    Raises CheckpointError if the pointer is damaged, or the file is not what it names.
    """
    champion = _record(pointer)
    file = pointer.parent / str(champion["parameters"])
    if file.is_file():
        _compare(file, str(champion["hash"]))
    return file


def check_candidate(file: Path) -> None:
    """Raises CheckpointError if a file of parameters is an iteration's, and is not what its manifest names."""
    iteration = file.resolve().parent.parent
    if file.name != PARAMETERS or file.resolve().parent.name != TRAIN or iteration.parent.name != ITERATIONS:
        return
    if not (iteration.parent.parent / CHAMPION).is_file():
        return
    if (trained := read_manifest(iteration / TRAIN)) is not None:
        _compare(file, trained.outputs.get(PARAMETERS, ""))
    elif (record := iteration / PROMOTE / CHAMPION).is_file():  # of iteration 0, which has no stages
        _compare(file, str(_record(record)["hash"]))
    else:
        what = f"{file} is of an iteration whose training is not finished: no manifest names it"
        raise CheckpointError(what, "finish the iteration first")


def _record(path: Path) -> dict[str, Any]:
    try:
        return read_signed(path, ("parameters", "hash"))
    except SignedJsonError as error:
        raise CheckpointError(f"{path} cannot be read: {error.reason}", PUT_BACK) from error


def _compare(file: Path, wanted: str) -> None:
    if (found := array_hash(stored_arrays(file))) != wanted:
        what = f"{file} has the hash {found[:12]}, and {wanted[:12]} is named"
        raise CheckpointError(what, "put the file back as it was written")
