"""Exports the search-free policy of a saved run for programs without this project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoix_like.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from stoix_like.runtime.runs.saved import SavedRun
    from stoix_like.runtime.weights.policy_folder import PolicyFiles


def seed_index(saved: SavedRun, seed: int | None) -> int:
    """The index of a seed among those of the run, 0 for None. Raises ConfigError if the run did not train it."""
    if seed is None:
        return 0
    if seed not in saved.seeds:
        listed = ", ".join(map(str, saved.seeds))
        raise ConfigError(f"--seed: {saved.path} did not train seed {seed}", f"its seeds are: {listed}")
    return saved.seeds.index(seed)


def export_policy(saved: SavedRun, index: int = 0) -> PolicyFiles:
    """The files of a run's search-free policy, and all parameters of the seed at `index`.

    Raises CheckpointError if the best checkpoint has no parameters of the seed, because it never had a finite score.
    """
    import jax

    from stoix_like.runtime.export import description, model_card
    from stoix_like.runtime.runs.build import ALGORITHMS
    from stoix_like.runtime.weights import parameters, policy_folder, policy_program

    saved.require_policy("export")
    if saved.updates[index] < 0:
        raise CheckpointError(
            f"seed {saved.seeds[index]} of {saved.path} has no best checkpoint: no score of it was a number",
            "use --checkpoint latest, or another --seed",
        )
    _, timestep = jax.eval_shape(saved.env.reset, jax.random.key(0))
    params = saved.seed_params(index)
    network_params = saved.network_params(params)
    factored = saved.env.action_spec.num_factors is not None
    described = description.policy_description(saved, index)
    shared = {name: described[name] for name in parameters.ParametersMetadata._fields if name in described}
    metadata = parameters.ParametersMetadata(**shared, stoix_like=described["versions"]["stoix_like"])
    return policy_folder.PolicyFiles(
        program=policy_program.serialize(saved.network, network_params, timestep.observation, factored=factored),
        parameters=parameters.serialize(ALGORITHMS[saved.meta.algorithm].published(params), metadata),
        description=described,
        card=model_card.render(saved, described, network_params),
    )
