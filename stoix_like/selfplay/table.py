"""The stages of an iteration of self-play, once: their order, the leaves and hashes that each reads, and its work.

Imports no JAX: the work is imported when it is run, so that `--status` and `--dry-run` answer at once.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stoix_like.errors import RunError
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.table import Stage, StageFiles
from stoix_like.selfplay import records
from stoix_like.selfplay.folders import WINDOW_FILE, Layout
from stoix_like.selfplay.iteration_start import SKIPPED, WINDOW, IterationStart, read_start

if TYPE_CHECKING:
    from stoix_like.selfplay.pipeline import Pipeline

SEARCH = ("num_simulations", "max_considered_actions", "value_scale", "maxvisit_init", "rescale_values")
#: What a match is specified by, beside its players and openings.
SPECIFICATION = ("task_id", "match_simulations", *SEARCH)
#: The rule of a promotion.
RULE = (
    "promotion_rule",
    "promotion_elo_0",
    "promotion_elo_1",
    "promotion_alpha",
    "promotion_beta",
    "most_pairs",
    "pairs_per_look",
)
_SELFPLAY = (
    "task_id",
    "num_envs",
    "seed",
    "selfplay_games",
    "shard_games",
    "engine",
    "num_simulations",
    "quick_simulations",
    "full_search_share",
    "max_considered_actions",
    "gumbel_scale",
    "value_scale",
    "maxvisit_init",
    "rescale_values",
    "random_plies",
    "temperature_plies",
    "play_temperature",
)
_EXPORT = ("task_id", "window_positions", "window_exponent", "window_growth", "validation_share", "replay_buffer_size")
_TRAIN = (
    "task_id",
    "seed",
    "hidden_dim",
    "num_layers",
    "shared_torso",
    "compute_dtype",
    "observation_adapter",
    "actor_lr",
    "critic_lr",
    "max_grad_norm",
    "weight_decay",
    "vf_coef",
    "tau",
    "decay_learning_rates",
    "num_envs",
    "rollout_length",
    "batch_size",
    "max_reuse",
    "use_symmetries",
    "root_value_weight",
    "replay_buffer_size",
    "training_epochs",
)
_EVALUATE = (*SPECIFICATION, *RULE, "match_opening_plies", "match_anchors", "anchor_pairs", "seed")


class StageOptions(NamedTuple):
    """What a stage is run with, beside what is on disk.

    Attributes:
        batches: of self-play that the iteration has afterwards.
        data_path: a window from elsewhere, instead of the store's.
    """

    batches: int = 1
    data_path: Path | None = None


class IterationFiles(StageFiles):
    """The manifests of an iteration, and what it was begun with.

    Args:
        layout: of the pipeline.
        number: of the iteration.
    """

    def __init__(self, layout: Layout, number: int) -> None:
        self.layout, self.number = layout, number
        super().__init__(layout.iteration(number), STAGES)

    @functools.cached_property
    def begun(self) -> IterationStart | None:
        """What the iteration was begun with; None if it was not. Raises CheckpointError if that cannot be read."""
        return read_start(self.layout, self.number)

    @property
    def start(self) -> IterationStart:
        """What the iteration was begun with. Raises RunError if it was not."""
        if self.begun is None:
            raise RunError(f"iteration {self.number} was not begun", "begin it first")
        return self.begun

    @property
    def is_finished(self) -> bool:
        """Whether the iteration is over: its last stage is done."""
        return self.manifests[STAGE_NAMES[-1]] is not None


def _store_or_window(files: IterationFiles) -> dict[str, str]:
    window = files.start.settings[WINDOW]
    return {"store": files.done("sync").facts["store"]} if window is None else {"data_path": window}


def _players(files: IterationFiles) -> dict[str, str]:
    champion = records.opponent_record(files.layout, files.number)
    return {"candidate": files.done("train").facts["candidate"], "champion": champion.hash}


def _play(pipeline: Pipeline, files: IterationFiles, options: StageOptions) -> Manifest:
    from stoix_like.selfplay import play

    return play.selfplay_stage(pipeline, files, options.batches)


def _sync(pipeline: Pipeline, files: IterationFiles, _: StageOptions) -> Manifest:
    from stoix_like.selfplay import store

    return store.sync_stage(pipeline, files)


def _export(pipeline: Pipeline, files: IterationFiles, options: StageOptions) -> Manifest:
    from stoix_like.selfplay import export

    if options.data_path is not None:
        return export.import_stage(pipeline, files, options.data_path)
    return export.export_stage(pipeline, files)


def _train(pipeline: Pipeline, files: IterationFiles, _: StageOptions) -> Manifest:
    from stoix_like.selfplay import train

    return train.train_stage(pipeline, files)


def _evaluate(pipeline: Pipeline, files: IterationFiles, _: StageOptions) -> Manifest:
    from stoix_like.selfplay import evaluate

    return evaluate.evaluate_stage(pipeline, files)


def _promote(pipeline: Pipeline, files: IterationFiles, _: StageOptions) -> Manifest:
    from stoix_like.selfplay import promote

    return promote.promote_stage(pipeline, files)


STAGES: tuple[Stage, ...] = (
    Stage("selfplay", _SELFPLAY, lambda files: {"player": files.start.player.hash}, _play),
    Stage("sync", ("task_id",), lambda files: {"selfplay": files.digest("selfplay")}, _sync),
    Stage("export", _EXPORT, _store_or_window, _export),
    Stage("train", _TRAIN, lambda files: {"window": files.done("export").outputs[WINDOW_FILE]}, _train),
    Stage("evaluate", _EVALUATE, _players, _evaluate),
    Stage(
        "promote",
        (*RULE, "auto_promote"),
        lambda files: {"train": files.done("train").digest, "evaluate": files.digest("evaluate")},
        _promote,
    ),
)
STAGE_NAMES = tuple(stage.name for stage in STAGES)
BY_NAME = {stage.name: stage for stage in STAGES}
#: All leaves that stages read.
SETTINGS = tuple(dict.fromkeys(leaf for stage in STAGES for leaf in stage.settings))


def stages_of(start: IterationStart) -> list[Stage]:
    """The stages of an iteration, without those that it skips."""
    skipped = {name.removeprefix("skip_") for name in SKIPPED if start.settings[name]}
    skipped = {"evaluate" if name == "evaluation" else name for name in skipped}
    if start.settings[WINDOW] is not None:
        skipped |= {"selfplay", "sync"}
    return [stage for stage in STAGES if stage.name not in skipped]
