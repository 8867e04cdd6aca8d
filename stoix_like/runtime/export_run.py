"""The command `export_policy.py`: the search-free policy of a saved run, for programs without this project."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoix_like.config.checks import replace_leaves
from stoix_like.config.sections import HardwareConfig
from stoix_like.errors import CheckpointError, ConfigError, RunError
from stoix_like.runtime.console.arguments import ArgumentParser, add_checkpoint_flag, add_run_argument, seed_number
from stoix_like.runtime.console.installation import versions
from stoix_like.runtime.console.spelling import program
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.telemetry import read_rows

if TYPE_CHECKING:
    from stoix_like.runtime.runs.saved import SavedRun
    from stoix_like.runtime.weights.policy_folder import PolicyFiles

#: Sections of the configuration that are nobody else's concern: where it ran, was saved and was shown.
_OF_THE_MACHINE = ("hardware", "logging", "checkpointing")
_VERSIONED = ("stoix_like", "jax", "jaxlib")
#: Leaves of the section `environment` that decide what is played, as `make_env` takes them.
_PLAYED = ("task_id", "max_episode_steps", "max_items", "max_ems", "kwargs", "exact_reference")


def main(argv: list[str]) -> int:
    """Exports and prints what was written; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    devices.select(HardwareConfig(device_type="cpu"))  # nothing is computed, and a GPU may be busy with the training
    from stoix_like.runtime.runs import saved as saved_run
    from stoix_like.runtime.weights import policy_folder

    saved = saved_run.load_run(arguments.run, arguments.checkpoint)
    if saved.is_published and arguments.out is None:
        raise ConfigError(f"--out: {saved.path} has no run folder to export into", "name a folder: --out FOLDER")
    index = position_of(saved, arguments.seed)
    files = exported(saved, index)
    folder = arguments.out or saved.path / "export"
    sizes = policy_folder.write(folder, files)
    print(_heading(files.description, saved.seeds))
    for name, size in sizes.items():
        print(f"  {folder / name}  {size:,} bytes")
    print(f'next: stoix_like.load_policy("{folder}"), or docs/how-to/export-a-policy.md where there is only jax')
    return 0


def make_parser() -> ArgumentParser:
    """What the command takes."""
    parser = ArgumentParser(
        program("export"),
        "Writes the policy of a run, without search, for programs that have jax and not this project.",
    )
    add_run_argument(parser)
    add_checkpoint_flag(parser)
    parser.add_argument(
        "--seed", type=seed_number, metavar="N", help="of a run of several seeds, the one (default: the first)"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder (default: export in the run folder)")
    return parser


def position_of(saved: SavedRun, seed: int | None) -> int:
    """Where a seed's parameters are among those of the run; None: the first.

    Raises:
        ConfigError: the run did not train it.
    """
    if seed is None:
        return 0
    if seed not in saved.seeds:
        listed = ", ".join(map(str, saved.seeds))
        raise ConfigError(f"--seed: {saved.path} did not train seed {seed}", f"its seeds are: {listed}")
    return saved.seeds.index(seed)


def exported(saved: SavedRun, index: int = 0) -> PolicyFiles:
    """The files of a run's search-free policy, and all its parameters.

    Args:
        saved: of `load_run`.
        index: the position of the seed.

    Raises:
        CheckpointError: the seed has no parameters in `best`, because it never had a finite score.
    """
    import jax

    from stoix_like.runtime import model_card
    from stoix_like.runtime.runs.build import ALGORITHMS
    from stoix_like.runtime.weights import parameters, policy_folder, policy_program

    if saved.updates[index] < 0:
        raise CheckpointError(
            f"seed {saved.seeds[index]} of {saved.path} has no best checkpoint: no score of it was a number",
            "use --checkpoint latest, or another --seed",
        )
    _, timestep = jax.eval_shape(saved.env.reset, jax.random.key(0))
    params = saved.seed_params(index)
    network_params = saved.network_params(params)
    factored = saved.env.action_spec.num_factors is not None
    description = describe(saved, index)
    told = {name: description[name] for name in parameters.Notes._fields if name in description}
    notes = parameters.Notes(**told, stoix_like=description["versions"]["stoix_like"])
    return policy_folder.PolicyFiles(
        program=policy_program.lower(saved.network, network_params, timestep.observation, factored=factored),
        parameters=parameters.parameters_bytes(ALGORITHMS[saved.meta.algorithm].published(params), notes),
        description=description,
        card=model_card.card(saved, description, network_params),
    )


def describe(saved: SavedRun, index: int = 0) -> dict[str, Any]:
    """The content of policy.json, without the digests: what goes in, what comes out, and where it is from."""
    from stoix_like.runtime.weights import policy_folder, policy_program

    found = versions()
    environment = dataclasses.asdict(saved.config.environment)
    return {
        "format": policy_folder.FORMAT,
        "format_version": policy_folder.FORMAT_VERSION,
        "task_id": saved.meta.task_id,
        "environment": {name: environment[name] for name in _PLAYED},
        "algorithm": saved.meta.algorithm,
        "checkpoint": saved.checkpoint,
        "update": saved.updates[index],
        "seed": saved.seeds[index],
        "evaluation": _evaluation(saved, index),
        "observation": _observation_specification(saved),
        "key": {"shape": [policy_program.KEY_WORDS], "dtype": "uint32", "kind": policy_program.KEY_IMPLEMENTATION},
        "action": _action_specification(saved),
        "platforms": list(policy_program.PLATFORMS),
        "versions": {name: found[name] for name in _VERSIONED},
        "config": _configuration(saved, index),
    }


def _configuration(saved: SavedRun, index: int) -> dict[str, Any]:
    """As if the one seed had been trained alone, which gives the same."""
    from stoix_like.config.dicts import config_to_dict

    alone = replace_leaves(saved.config, {"seed": saved.seeds[index], "num_seeds": 1})
    return {name: leaves for name, leaves in config_to_dict(alone).items() if name not in _OF_THE_MACHINE}


def _observation_specification(saved: SavedRun) -> list[dict[str, Any]]:
    import jax

    from stoix_like.runtime.weights import policy_program

    _, timestep = jax.eval_shape(saved.env.reset, jax.random.key(0))
    leaves = policy_program.observation_leaves(timestep.observation)
    return [
        {"name": name, "shape": [policy_program.BATCH, *leaf.shape], "dtype": leaf.dtype.name}
        for name, leaf in leaves.items()
    ]


def _action_specification(saved: SavedRun) -> dict[str, Any]:
    from stoix_like.runtime.weights import policy_program

    spec, joint = saved.env.action_spec, saved.env.joint_shape
    return {
        "kind": "categorical" if spec.num_factors is None else "factored",
        "shape": [policy_program.BATCH, *spec.shape],
        "dtype": "int32",
        "num_values": spec.num_values,
        "num_factors": spec.num_factors,
        "joint_shape": None if joint is None else list(joint),  # row-major: numpy.unravel_index(action, joint_shape)
    }


def _evaluation(saved: SavedRun, index: int) -> dict[str, float]:
    """What the checkpoint scored, as far as it is known: the means that metrics.jsonl has of its update.

    `evaluator/` is with search if the run searches, `evaluator_network/` is what is exported. A run folder without
    metrics still knows the score of its best checkpoint, and published parameters what was published with them.
    """
    if saved.is_published:
        return dict(saved.meta.host["evaluation"])
    found = {}
    scores = saved.meta.host.get("scores")
    if scores is not None and math.isfinite(scores[index]):
        found["evaluator/mean_return"] = float(scores[index])
    with contextlib.suppress(RunError):  # no metrics, or damaged ones: no reason not to export
        for row in read_rows(saved.path / "metrics.jsonl"):
            of = (row.get("category"), row.get("update"), row.get("seed"))
            if of == ("EVALUATOR", saved.updates[index], saved.seeds[index]):
                found |= {name: value for name, value in row.items() if name.startswith("evaluator")}
    return {name: value for name, value in found.items() if not name.endswith("/duration_ms")}


def _heading(description: dict[str, Any], seeds: list[int]) -> str:
    of_several = f" of {', '.join(map(str, seeds))}" if len(seeds) > 1 else ""
    policy = "the network alone, without its search" if description["algorithm"] == "spo" else "its policy"
    platforms = ", ".join(description["platforms"])
    return (
        f"{description['algorithm'].upper()} on {description['task_id']}, checkpoint {description['checkpoint']}"
        f" (update {description['update']}), seed {description['seed']}{of_several}: {policy}, for {platforms}"
    )
