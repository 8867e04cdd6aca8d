"""A program of its own: the continuous loop, which the kernel kills at a place in a stage, as `kill -9` does.

Words: the stage, the place, the flags of the loop. Nothing else of the loop is replaced.
"""

import os
import signal
import sys

import stoix_like.runtime.stages.run as stages
from stoix_like.commands.entry import run_main
from stoix_like.commands.selfplay import continuous_training
from stoix_like.selfplay.events.log import EventLog
from stoix_like.selfplay.stages import evaluate, export, promote, selfplay, sync, train

#: {stage: what it calls for each part of its work, and how many parts are done before it is killed inside}.
PARTS = {
    "selfplay": (selfplay, "write_arrays", 1),  # the first of two shards is written
    "sync": (sync, "link", 1),  # and is in the store
    "export": (export, "write_arrays", 1),  # the window is written, the positions to validate on are not
    "train": (train.FollowTraining, "run", 2),
    "evaluate": (evaluate, "write_arrays", 1),  # a piece of the match
    "promote": (promote.records, "write_record", 1),  # there is a record, and the champion is the one before
}
#: {stage: the event that says that it is done}.
ENDS = {
    "selfplay": "SELFPLAY_COMPLETE",
    "sync": "DATA_SYNC_COMPLETED",
    "export": "NPZ_EXPORT_COMPLETE",
    "train": "TRAINING_COMPLETED",
    "evaluate": "EVALUATION_COMPLETED",
    "promote": "ITERATION_COMPLETE",
}


def killed_at(owner, name, is_there):
    """Replaces a function by itself, but for the call for which `is_there(arguments)`: that one kills the process."""
    original = getattr(owner, name)

    def call(*arguments, **options):
        if is_there(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, call)


def arm(stage, place):
    """Lets the process die in a stage: inside, before its manifest, or before its event."""
    if place == "inside":
        owner, name, parts = PARTS[stage]
        calls = iter(range(parts + 1))
        killed_at(owner, name, lambda *_: next(calls) == parts)
    elif place == "before its manifest":
        killed_at(stages, "write_manifest", lambda folder, manifest: manifest.stage == stage)
    else:
        killed_at(EventLog, "append", lambda log, events: ENDS[stage] in [event.kind for event in events])


if __name__ == "__main__":
    arm(*sys.argv[1:3])
    del sys.argv[1:3]
    run_main(continuous_training.main)
