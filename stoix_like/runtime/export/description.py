"""The content of policy.json: inputs, outputs and origin of an exported policy."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import jax

from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.dicts import config_to_dict
from stoix_like.config.sections.roles import Role, leaves_with
from stoix_like.errors import RunError
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.results.series import read_started_run
from stoix_like.runtime.runs.host_values import best_scores
from stoix_like.runtime.runs.saved import SavedRun
from stoix_like.runtime.weights import policy_folder, policy_program

_PACKAGES = ("stoix_like", "jax", "jaxlib")


def policy_description(saved: SavedRun, index: int = 0) -> dict[str, Any]:
    """The content of policy.json for the seed at `index`, without the digests."""
    installed = versions()
    environment = leaves_with(type(saved.config), Role.ENVIRONMENT)
    spec, joint = saved.env.action_spec, saved.env.joint_shape
    _, timestep = jax.eval_shape(saved.env.reset, jax.random.key(0))
    leaves = policy_program.observation_leaves(timestep.observation)
    return {
        "format": policy_folder.FORMAT,
        "format_version": policy_folder.FORMAT_VERSION,
        "task_id": saved.meta.task_id,
        "environment": {k: v for k, v in dataclasses.asdict(saved.config.environment).items() if k in environment},
        "algorithm": saved.meta.algorithm,
        "checkpoint": saved.checkpoint,
        "update": saved.updates[index],
        "seed": saved.seeds[index],
        "evaluation": _evaluation(saved, index),
        "observation": [
            {"name": name, "shape": [policy_program.BATCH, *leaf.shape], "dtype": leaf.dtype.name}
            for name, leaf in leaves.items()
        ],
        "key": {"shape": [policy_program.KEY_WORDS], "dtype": "uint32", "kind": policy_program.KEY_IMPLEMENTATION},
        "action": {
            "kind": "categorical" if spec.num_factors is None else "factored",
            "shape": [policy_program.BATCH, *spec.shape],
            "dtype": "int32",
            "num_values": spec.num_values,
            "num_factors": spec.num_factors,
            "joint_shape": None if joint is None else list(joint),  # row-major: numpy.unravel_index(action, joint)
        },
        "platforms": list(policy_program.PLATFORMS),
        "versions": {name: installed[name] for name in _PACKAGES},
        "config": _configuration(saved, index),
    }


def _configuration(saved: SavedRun, index: int) -> dict[str, Any]:
    """The configuration of a run that trains only this seed, which gives the same parameters.

    Devices, folders and logging of the machine that trained it are not published.
    """
    single = replace_leaves(saved.config, {"seed": saved.seeds[index], "num_seeds": 1})
    own = leaves_with(type(single), Role.MACHINE | Role.PROCESS)
    kept = {
        section: {name: value for name, value in leaves.items() if name not in own}
        for section, leaves in config_to_dict(single).items()
    }
    return {section: leaves for section, leaves in kept.items() if leaves}


def _evaluation(saved: SavedRun, index: int) -> dict[str, float]:
    """The scores of the checkpoint, if known: the means over episodes that metrics.jsonl has for its update.

    `evaluator/` is with search if the run searches; `evaluator_network/` is the exported policy. Without metrics, the
    best checkpoint still stores its score, and published parameters store the scores published with them.
    """
    if saved.published_scores is not None:
        return dict(saved.published_scores)
    found: dict[str, Any] = {}
    best = best_scores(saved.meta)
    if best is not None and math.isfinite(best.scores[index]):
        found["evaluator/mean_return"] = float(best.scores[index])
    with contextlib.suppress(RunError):  # missing or damaged metrics do not prevent an export
        evaluations = read_started_run(saved.path).evaluations
        found |= evaluations.get(saved.updates[index], {}).get(saved.seeds[index], {})
    return {name: value for name, value in found.items() if not name.endswith("/duration_ms")}
