"""A program of its own: a pipeline of SPA, which the kernel kills at a place in a stage, as `kill -9` does.

Words: the stage, the place ("inside" or "before its manifest"), and the words of the command.
"""

import os
import signal
import sys

import stoix_like.runtime.stages.run as stages
from stoix_like.commands.entry import run_main
from stoix_like.commands.runs import spa
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.spa import evaluating, generating

TRAINED = ("pretrain", "sft", "ppo")  # killed when another checkpoint than that of update 0 is there
#: {stage: (what it calls for each part of its work, how many parts are done before it is killed inside)}
PARTS = {
    "generate": (generating.row_files, "write_rows", 1),  # rows to learn from are written, those of validation are not
    "evaluate": (evaluating, "write_arrays", 0),
}


def kill_before(owner, name, is_there):
    """Replaces a function by itself, but for the call for which `is_there(arguments)`: that one kills the process."""
    original = getattr(owner, name)

    def call(*arguments, **options):
        if is_there(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, call)


def has_learned(store):
    """Whether a checkpoint of the state of a run, not that of its best one, is of an update after the first."""
    return store.folder.name == "checkpoints" and any(
        int(path.parent.name) for path in store.folder.glob("*/meta.json")
    )


if __name__ == "__main__":
    stage, place, *argv = sys.argv[1:]
    if place == "inside" and stage in TRAINED:
        kill_before(CheckpointStore, "save", lambda store, *_: store.folder.parts[-3] == stage and has_learned(store))
    elif place == "inside":
        owner, name, parts = PARTS[stage]
        calls = iter(range(1_000))
        kill_before(owner, name, lambda *_: next(calls) == parts)
    else:
        kill_before(stages, "write_manifest", lambda _, manifest: manifest.stage == stage)
    sys.argv[1:] = argv
    run_main(spa.main)
