"""The stages that train: an ordinary run in the folder of the stage, whose last parameters are handed on.

A run that was killed is resumed if the stage is asked for the same. Where PPO begins and what it learns from are
decided by the stages before; the last state counts, not the best one: more epochs win (arXiv 2510.15047, section 4.3).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax

from stoix_like.algorithms.agent.counting import GENERATED_TOKENS, TRAINED_TOKENS
from stoix_like.errors import StorageError
from stoix_like.runtime.loading.config import loaded_config
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.results.series import read_started_run
from stoix_like.runtime.runs import agents
from stoix_like.runtime.runs.build import ALGORITHMS, build
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.pipeline_files import RUN
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageCall, StageResult, refuse_changed_settings, run_stage
from stoix_like.runtime.stages.table import StageFiles
from stoix_like.runtime.storage.atomic import atomic_write_text
from stoix_like.runtime.storage.signed_json import SignedJsonError, read_signed, signed_text
from stoix_like.runtime.training.driver import DONE
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.runtime.training.train import train
from stoix_like.runtime.weights.parameters import PARAMETERS
from stoix_like.spa.arms import EVALUATE
from stoix_like.spa.folders import BEGUN
from stoix_like.spa.pipeline import TOKENIZER, Pipeline, agent_of, read_params, tokenizer_name, write_params
from stoix_like.spa.stage_configs import algorithm_of

_COUNTS = {  # {fact: the metric of the last update that it is}
    "generated_tokens": GENERATED_TOKENS,
    "trained_tokens": TRAINED_TOKENS,
}
BEGUN_HINT = "use the former values, or remove the folder of the stage to begin it again"


def train_stage(
    pipeline: Pipeline, files: StageFiles, call: StageCall, before: str | None = None, **leaves: Any
) -> Manifest:
    """Trains, or goes on with what was begun.

    Args:
        pipeline: of the stage.
        files: of its stages.
        call: what is asked for.
        before: the stage with whose parameters the run begins; None for fresh ones.
        leaves: of the run's configuration that depend on the stages before.

    Raises:
        CheckpointError: these parameters are not those that the manifest of the stage before names.
        Interrupted: a signal ended the run.
        ConfigError: the stage was done, or begun, with other settings.
    """
    folder = files.folder(call.name)

    def work() -> StageResult:
        if before is None:
            return _train(pipeline, folder, call, leaves)
        read_params(files, before, agent_of(pipeline, EVALUATE))  # which plays with the parameters of all stages
        return _train(pipeline, folder, call, {"load_path": str(files.folder(before) / PARAMETERS)} | leaves)

    return run_stage(folder, call, work, hint=BEGUN_HINT)


def _train(pipeline: Pipeline, folder: Path, call: StageCall, leaves: dict[str, Any]) -> StageResult:
    algorithm = algorithm_of(pipeline.arm, call.name)
    given = {"save_dir": str(folder), "run_name": RUN, "save_interval": pipeline.config.pipeline.save_interval}
    config = pipeline.stage_config(call.name, **(given | leaves))
    run = _prepared_run(folder, call)
    options = CommandOptions(resume=str(run) if run.is_dir() else None)
    result = train(algorithm, loaded_config(config, options), stop=pipeline.stop)
    last = config.training_core.num_updates
    if result.status != DONE or result.last_update < last:
        raise Interrupted(call.name)
    outputs, facts = {}, _facts(run, last)
    if ALGORITHMS[algorithm].speaks:
        params = _last_params(algorithm, config, run, last)
        outputs[PARAMETERS] = write_params(folder, params, algorithm, config, last)
        facts[TOKENIZER] = tokenizer_name(agents.make_tokenizer())
    return StageResult(outputs, facts, _last_scores(run, last))


def _prepared_run(folder: Path, call: StageCall) -> Path:
    """The path of the run: there if it is to go on, and gone if it was begun from something else."""
    run, begun = folder / RUN, read_begun(folder)
    if begun:
        refuse_changed_settings(call.name, begun["settings"], call.settings, BEGUN_HINT)
    has_checkpoint = any((run / "checkpoints").glob("[0-9]*/meta.json"))
    if run.is_dir() and (begun.get("inputs") != call.inputs or not has_checkpoint):
        shutil.rmtree(run)
    atomic_write_text(folder / BEGUN, signed_text({"inputs": call.inputs, "settings": call.settings}))
    return run


def read_begun(folder: Path) -> dict[str, Any]:
    """The inputs and settings with which the run of a stage was begun; empty if it was not. Raises StorageError."""
    path = folder / BEGUN
    try:
        begun: dict[str, Any] = read_signed(path, ("inputs", "settings"))
    except SignedJsonError as error:
        if error.is_missing:
            return {}
        raise StorageError(f"{path} cannot be used: {error.reason}", BEGUN_HINT) from error
    return begun


def _last_params(algorithm: str, config: Any, run: Path, update: int) -> Any:
    learner = build(algorithm, config).learner
    shapes = jax.eval_shape(learner.init, jax.random.key(0)).params
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    template = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), shapes)
    params = CheckpointStore(run / "checkpoints").load_part("params", template, update)
    return agents.policy_params(ALGORITHMS[algorithm].network_params(params))


def _facts(run: Path, last: int) -> dict[str, Any]:
    """Updates, and the last values of what is counted."""
    series, facts = read_started_run(run).series, {"updates": last}
    for name, metric in _COUNTS.items():
        for points in series.get(metric, {}).values():
            facts[name] = int(points.values[-1])
    return facts


def _last_scores(run: Path, last: int) -> dict[str, float]:
    """{last_NAME: score} of the last evaluation; empty without one. They are not compared: a signal may have cut it."""
    found: dict[str, float] = {}
    for values in read_started_run(run).evaluations.get(last, {}).values():
        numbers = {name.partition("/")[2]: x for name, x in values.items() if isinstance(x, (int, float))}
        found |= {f"last_{name}": float(x) for name, x in numbers.items()}
    return found
