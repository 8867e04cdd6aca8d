"""Writes two_iterations.tar.gz: the folder of a pipeline after two iterations of tic-tac-toe.

It was made once, by the version whose formats it keeps: shards and windows of format 2, manifests of format 1. Later
versions have to read it, so it is not made again when a format grows. Its second iteration has taken in a shard from
elsewhere. `python tests/selfplay/stages/golden/make_golden.py FILE` writes one of the present version.
"""

import os
import platform
import sys
import tarfile
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]


def main(file):
    sys.path.insert(0, str(TESTS))
    from support.pipelines import small_config, small_pipeline

    from stoix_like.runtime.console.reporter import SILENT
    from stoix_like.runtime.runs.find import checkpoint_updates
    from stoix_like.runtime.stages.array_files import write_arrays
    from stoix_like.selfplay.iterations.steps import run_iteration
    from stoix_like.selfplay.pipeline.progress import Progress
    from stoix_like.selfplay.stages import selfplay

    platform.node, platform.platform = (lambda: "host"), (lambda: "machine")
    file = Path(file).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # so that no path of this machine is written
        pipeline = small_pipeline("runs")
        run_iteration(pipeline)
        progress = Progress(SILENT, pipeline.stop, "selfplay", "games", 5)
        found = selfplay.play_shard(pipeline, 900, 0, 5, pipeline.first_params, progress)
        origin = selfplay.ShardOrigin(0, 900, 0, "elsewhere", "gumbel-mcts")
        write_arrays(Path("theirs", "shard.npz"), selfplay.shard_arrays(pipeline.game, found, origin))
        pipeline.config = small_config("runs", sync_from="theirs")
        run_iteration(pipeline)
        root, checkpoints = pipeline.layout.root, pipeline.layout.train_run / "checkpoints"
        last = checkpoint_updates(checkpoints)[-1]

        def kept(entry):
            parts = Path(entry.name).parts
            if "checkpoints" in parts[:-1] and parts[parts.index("checkpoints") + 1] != str(last):
                return None  # only the last one is needed to go on
            entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, "", ""
            return entry

        with tarfile.open(file, "w:gz") as archive:
            archive.add(root, root.name, filter=kept)


if __name__ == "__main__":
    main(sys.argv[1])
