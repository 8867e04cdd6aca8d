"""Every file that the package reads again is refused when it is damaged, with a reason; nothing of it is loaded.

The files of self-play pipelines: tests/selfplay/test_damage.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.damage import DAMAGES
from support.paths import contents
from support.transcripts import rows

from stoix_like.errors import CheckpointError
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays
from stoix_like.runtime.stages.manifest import FILE, Manifest, read_manifest, write_manifest
from stoix_like.runtime.weights import parameters, policy_folder
from stoix_like.runtime.weights.parameters import ParametersMetadata

STATE = {"params": {"kernel": jnp.arange(4.0)}, "step": jnp.int32(3)}


def checkpoint(file):
    def make(folder):
        meta = CheckpointMeta(
            "ppo", "Maze-v0", 3, {"environment": {"num_envs": 64}}, {"elapsed_seconds": 1.5, "evaluated_at": 0}
        )
        return CheckpointStore(folder / "checkpoints", create=True).save(STATE, meta) / file

    return make


def load_checkpoint(path):
    store = CheckpointStore(next(parent for parent in path.parents if parent.name == "checkpoints"))
    store.load(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), STATE))


def manifest(folder):
    write_manifest(folder, Manifest("a", {"x": "1"}, {"y": 2}, {"z": "3"}, {"n": 4}, {"host": "one"}))
    return folder / FILE


def arrays(folder):
    write_arrays(folder / "arrays.npz", {"a": np.arange(600, dtype=np.int16), "b": np.float32([0.5] * 40)})
    return folder / "arrays.npz"


def export(file):
    """The files of an export, whose program no reader here runs."""

    def make(folder):
        about = {"algorithm": "ppo", "task_id": "Maze-v0", "checkpoint": "best", "update": 3, "seed": 0}
        about |= {"config": {}, "evaluation": {}}
        content = parameters.serialize({"kernel": jnp.ones(400)}, ParametersMetadata(**about, stoix_like="0.1.0"))
        names = {"format": policy_folder.FORMAT, "format_version": policy_folder.FORMAT_VERSION}
        described = {**about, **names, "versions": {"jax": "0.1"}, "observation": []}
        policy_folder.write(folder, policy_folder.PolicyFiles(b"a program" * 40, content, described, "a card"))
        return folder / file

    return make


def read_parameters(path):
    parameters.read_metadata(path)
    policy_folder.check_parameters(path)


#: {format: (makes a file in a folder, reads it)}
FORMATS = {
    "checkpoint": (checkpoint("state/manifest.ocdbt"), load_checkpoint),
    "meta": (checkpoint("meta.json"), load_checkpoint),
    "manifest": (manifest, lambda path: read_manifest(path.parent)),
    "arrays": (arrays, read_arrays),
    "parameters": (export("params.safetensors"), read_parameters),
    "program": (export("policy.stablehlo"), lambda path: policy_folder.read(path.parent)),
    "description": (export("policy.json"), lambda path: policy_folder.read(path.parent)),
}


@pytest.mark.parametrize(
    ("case", "reason"),
    rows("""
checkpoint removed => its file state/manifest.ocdbt is missing
checkpoint empty => its file state/manifest.ocdbt is not as it was written
checkpoint half => its file state/manifest.ocdbt is not as it was written
checkpoint flipped => its file state/manifest.ocdbt is not as it was written
checkpoint text => its file state/manifest.ocdbt is not as it was written
checkpoint folder => its file state/manifest.ocdbt is missing
meta removed => its meta.json is missing or not ours
meta empty => its meta.json is missing or not ours
meta half => its meta.json is missing or not ours
meta flipped => its meta.json was changed
meta text => its meta.json is missing or not ours
meta list => its meta.json is missing or not ours
meta folder => its meta.json is missing or not ours
manifest empty => torn, or not ours
manifest half => torn, or not ours
manifest flipped => changed after it had been written
manifest text => torn, or not ours
manifest list => torn, or not ours
manifest folder => torn, or not ours
arrays removed => there is no such file
arrays empty => torn, or no .npz file
arrays half => torn, or no .npz file
arrays flipped => torn, or no .npz file
arrays text => torn, or no .npz file
arrays pickle => it holds pickled objects, which are never loaded
arrays folder => Is a directory
parameters removed => no parameters at
parameters empty => header too small
parameters half => incomplete metadata
parameters flipped => its params.safetensors is not the one that policy.json describes
parameters text => header too large
parameters pickle => header too large
parameters folder => no parameters at
program removed => its policy.stablehlo cannot be read: No such file
program empty => its policy.stablehlo is not the one that policy.json describes
program half => its policy.stablehlo is not the one that policy.json describes
program flipped => its policy.stablehlo is not the one that policy.json describes
program folder => its policy.stablehlo cannot be read: Is a directory
description removed => no exported policy in
description empty => its policy.json cannot be read
description half => its policy.json cannot be read
description flipped => its policy.json is not of stoix_like
description text => its policy.json cannot be read
description list => its policy.json is not of stoix_like
description folder => its policy.json cannot be read
"""),
)
def test_a_damaged_file_is_refused_with_its_reason_and_left_alone(tmp_path, case, reason):
    kind, damage = case.split()
    make, read = FORMATS[kind]
    path = make(tmp_path)
    read(path)  # whole, it is taken
    DAMAGES[damage](path)
    before = contents(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        read(path)
    assert reason in caught.value.what
    assert len(caught.value.what.splitlines()) == len(caught.value.hint.splitlines()) == 1
    assert contents(tmp_path) == before
