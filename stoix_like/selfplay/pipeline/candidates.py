"""Candidates and the champion: parameter files named by the hash of their arrays, and the pointer to one of them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from stoix_like.config.dicts import config_to_dict
from stoix_like.errors import CheckpointError
from stoix_like.runtime.console.installation import installed_version
from stoix_like.runtime.stages.damage import DamagedOutputError
from stoix_like.runtime.stages.hashes import tree_hash
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.weights import parameters
from stoix_like.runtime.weights.parameters import ParametersMetadata
from stoix_like.selfplay.files import records
from stoix_like.selfplay.files.folders import PARAMETERS, Layout
from stoix_like.selfplay.files.iteration_start import SelfPlayer
from stoix_like.selfplay.files.records import (
    ChampionRecord,
    first_record,
    promoted_record,
    read_record,
    record_path,
    write_record,
)
from stoix_like.selfplay.pipeline.programs import Pipeline
from stoix_like.selfplay.pipeline.run_configs import published_config
from stoix_like.types import NetworkParams


class NetworkVersion(NamedTuple):
    """A network of a pipeline, by the hash of its parameters. Of an engine that plays, the hash is its name."""

    hash: str
    params: NetworkParams


def write_candidate(pipeline: Pipeline, folder: Path, params: NetworkParams, update: int) -> str:
    """The hash of the parameters, which are written into the folder."""
    config = published_config(pipeline.config, pipeline.layout, max(update, 1))
    version = installed_version("stoix_like") or ""
    metadata = ParametersMetadata(
        algorithm="alphazero",
        task_id=config.environment.task_id,
        checkpoint="latest",
        update=update,
        seed=config.architecture.seed,
        config=config_to_dict(config),
        evaluation={},
        stoix_like=version,
    )
    folder.mkdir(parents=True, exist_ok=True)
    return tree_hash(parameters.write(folder / PARAMETERS, params, metadata))


def read_version(pipeline: Pipeline, path: Path, expected_hash: str) -> NetworkVersion:
    """The player of a parameter file. Raises CheckpointError if it does not fit the game, or its hash is another."""
    task_id = parameters.read_metadata(path).task_id
    if task_id != pipeline.config.environment.task_id:
        raise CheckpointError(f"{path} is a candidate of {task_id}", f"this pipeline plays {pipeline.game.name}")
    params = pipeline.read_params(path)
    if (found := tree_hash(params)) != expected_hash:
        what = f"{path} has the hash {found[:12]}, and {expected_hash[:12]} is named"
        raise CheckpointError(what, "put the file back as it was written")
    return NetworkVersion(expected_hash, params)


def read_candidate(pipeline: Pipeline, iteration: int, trained: Manifest) -> NetworkVersion:
    """The candidate of an iteration. Raises DamagedOutputError if its file is not what the manifest names."""
    path = pipeline.layout.stage(iteration, trained.stage) / PARAMETERS
    try:
        return read_version(pipeline, path, trained.facts["candidate"])
    except CheckpointError as error:
        raise DamagedOutputError(trained.stage, [path], error.what) from error


def self_player(pipeline: Pipeline, player: SelfPlayer) -> NetworkVersion:
    """Who plays in an iteration. Raises CheckpointError as `read_version`."""
    if player.parameters is None:
        return NetworkVersion(player.hash, pipeline.first_params)  # which the engine does not read
    return read_version(pipeline, pipeline.layout.root / player.parameters, player.hash)


def read_champion(pipeline: Pipeline) -> tuple[ChampionRecord, NetworkVersion]:
    """The champion. Raises CheckpointError if it cannot be read, or does not fit."""
    record = read_record(pipeline.layout.champion)
    return record, read_version(pipeline, pipeline.layout.root / record.parameters, record.hash)


def read_opponent(pipeline: Pipeline, iteration: int) -> NetworkVersion:
    """Whom the candidate of an iteration plays: the champion, before it became champion itself."""
    record = records.opponent_record(pipeline.layout, iteration)
    return read_version(pipeline, pipeline.layout.root / record.parameters, record.hash)


def has_champion(layout: Layout) -> bool:
    """Whether there is a champion. Raises CheckpointError if the pointer is missing and there was one."""
    if layout.champion.is_file():
        return True
    known = [number for number in layout.iterations() if record_path(layout, number).is_file()]
    if known and layout.last_iteration() > 0:  # else a first start has died before it wrote the pointer
        what = f"{layout.champion} is missing, and iterations {', '.join(map(str, known))} have promoted champions"
        raise CheckpointError(what, f"put it back, or copy {record_path(layout, known[-1])} there")
    return False


def begin_lineage(pipeline: Pipeline) -> None:
    """Makes the random parameters of iteration 0 the champion, if there is none, and mends what a killed start left.

    The pointer is written last. Earlier versions wrote the record last.
    """
    layout = pipeline.layout
    path = record_path(layout, 0)
    if has_champion(layout):
        with contextlib.suppress(CheckpointError):  # nothing that is left names the first parameters
            if not path.is_file():
                record = promoted_record(layout, 0)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_record(path, record)
        return
    record = first_record(layout, write_candidate(pipeline, layout.stage(0, "train"), pipeline.first_params, 0))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_record(path, record)
    write_record(layout.champion, record)
