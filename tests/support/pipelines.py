"""Small self-play pipelines: tic-tac-toe with a tiny network, a few games and a match of four openings."""

import contextlib
import json

import numpy as np

from stoix_like.config.layers import resolve
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.stages.array_files import write_arrays
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout
from stoix_like.selfplay.files.shards import ShardOrigin, shard_arrays
from stoix_like.selfplay.pipeline.programs import Memory, Pipeline
from stoix_like.selfplay.pipeline.progress import Progress
from stoix_like.selfplay.stages import selfplay

SMALL = {
    "task_id": "tic_tac_toe",
    "num_envs": 4,
    "rollout_length": 4,
    "hidden_dim": 8,
    "num_layers": 1,
    "num_simulations": 2,
    "batch_size": 16,
    "max_reuse": 4.0,
    "replay_buffer_size": 256,
    "random_plies": 2,
    "selfplay_games": 10,
    "shard_games": 5,
    "window_positions": 64,
    "validation_share": 0.25,
    "save_interval": 1,
    "match_opening_plies": 2,
    "match_anchors": "random",
    "anchor_pairs": 2,
    "most_pairs": 4,
    "pairs_per_look": 2,
    # the first look decides: whoever is not much worse is promoted
    "promotion_rule": "sprt",
    "promotion_elo_0": -200.0,
    "promotion_elo_1": 1.0,
    "promotion_alpha": 0.49,
    "promotion_beta": 0.49,
}


def small_config(save_dir, **leaves):
    return resolve(SelfPlayConfig(), SMALL | {"save_dir": str(save_dir)} | leaves)


def small_pipeline(save_dir, reporter=SILENT, **leaves):
    return Pipeline(small_config(save_dir, **leaves), reporter)


def moved(pipeline, save_dir):
    """The pipeline in another folder, of which it remembers nothing; its compiled programs stay."""
    pipeline.layout = Layout(save_dir / pipeline.layout.root.name)
    pipeline.memory = Memory()
    return pipeline


@contextlib.contextmanager
def restored(pipeline):
    """The pipeline for a block, which may move and change it: it is as before afterwards."""
    before = pipeline.layout, pipeline.config, pipeline.reporter
    try:
        yield pipeline
    finally:
        pipeline.layout, pipeline.config, pipeline.reporter = before
        pipeline.stop.is_set = False


def changed(pipeline, **leaves):
    """The pipeline with other leaves in the same folder; they are of no program, since those are compiled."""
    pipeline.config = small_config(pipeline.layout.root.parent, **leaves)
    return pipeline


def write_shard(pipeline, path, *, iteration=900, shard=0, player=None, sign=1.0):
    """Writes a shard of five games as another machine does, by default one that is far ahead; returns its arrays.

    `player` is (hash, parameters). With a `sign` of -1 the values of its search are false, which no rule sees.
    """
    name, params = player or ("p", pipeline.first_params)
    progress = Progress(SILENT, pipeline.stop, "selfplay", "games", 5)
    records = selfplay.play_shard(pipeline, iteration, shard, 5, params, progress)
    records = records._replace(root_values=sign * records.root_values)
    arrays = shard_arrays(pipeline.game, records, ShardOrigin(0, iteration, shard, name, "gumbel-mcts"))
    write_arrays(path, arrays)
    return arrays


def digests(layout, number):
    """{stage: digest of its manifest} of an iteration."""
    found = {name: read_manifest(layout.stage(number, name)) for name in STAGE_NAMES}
    return {name: manifest.digest for name, manifest in found.items() if manifest is not None}


def undo(layout, first):
    """Takes the manifests of iteration 2 away, from a stage on; returns the digests of all."""
    before = digests(layout, 2)
    for name in STAGE_NAMES[STAGE_NAMES.index(first) :]:
        (layout.stage(2, name) / "manifest.json").unlink()
    return before


def champion_hash(layout):
    return json.loads(layout.champion.read_text())["body"]["hash"]


def arrays_of(path):
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
