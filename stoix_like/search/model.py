"""What is searched, from where and how: the types a search is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from stoix_like.errors import ConfigError
from stoix_like.search import roots
from stoix_like.types import Array, EnvState, Key, Observation, Params, TimeStep

StepFunction = Callable[[EnvState, Array], tuple[EnvState, TimeStep]]
#: The temperature, or how it follows from the advantages [N, P] accumulated so far: -> [N].
Temperature = Array | float | Callable[[Array], Array]
Continuation = Literal["sampled", "greedy"]
Resampling = Literal["period", "ess", "none"]
Resampler = Literal["systematic", "multinomial"]


class SearchModel(NamedTuple):
    """What is searched, as functions over M = N * P rows.

    Attributes:
        step: (states [M, ...], actions [M] or [M, F]) -> (states, TimeStep). Raw: it never resets.
        logits: (params, observations) -> masked logits [M, A] or [M, F, A].
        value: (params, observations) -> [M].
        rekey: (states, keys [M]) -> states with their own randomness replaced, at every depth: clones would share
            their future otherwise, and all particles the future that will come true.
        logits_and_value: (params, observations) -> both, for networks that share a torso. Default: one after the other.
        deterministic: True says that particles may step without new randomness: `step` uses none, or the search is
            meant to foresee it. A model without `rekey` must say so.
    """

    step: StepFunction
    logits: Callable[[Params, Observation], Array]
    value: Callable[[Params, Observation], Array]
    rekey: Callable[[EnvState, Key], EnvState] | None = None
    logits_and_value: Callable[[Params, Observation], tuple[Array, Array]] | None = None
    deterministic: bool = False


class Root(NamedTuple):
    """Where N searches begin. Whether the step that led there ended an episode does not matter."""

    env_state: EnvState  # [N, ...]
    observation: Observation  # [N, ...]


class SearchConfig(NamedTuple):
    """How is searched. The numbers with a point may be traced scalars; the rest shapes the program."""

    num_particles: int = 16
    search_depth: int | Literal["full"] = 4  # model steps; full: until all particles are finished
    max_depth: int | None = None  # steps after which `full` gives up; needed by it
    gamma: Array | float = 0.99
    gae_lambda: Array | float = 1.0
    root: roots.RootKind = "iid"
    continuation: Continuation = "sampled"
    dirichlet_alpha: Array | float = 1.0
    dirichlet_fraction: Array | float = 0.0  # the number 0.0 leaves the noise out of the program
    root_noise_correction: bool = False
    resampling: Resampling = "period"
    resampling_period: int = 4  # depths
    resampling_ess_threshold: Array | float = 0.5  # share of P
    resampler: Resampler = "systematic"
    record_paths: bool = False


_WORDS = {"root": roots.RootKind, "continuation": Continuation, "resampling": Resampling, "resampler": Resampler}


def check(config: SearchConfig, *, factored: bool) -> None:
    """Refuses a configuration that no search can follow.

    Args:
        config: of the search.
        factored: whether actions have several factors.

    Raises:
        ConfigError: a word that is none of the choices, a size below 1, `full` without an end, a share or discount
            outside [0, 1], or distinct roots for a factored action.
    """
    for name, choices in _WORDS.items():
        word, known = getattr(config, name), get_args(choices)
        if word not in known:
            raise ConfigError(f"search.{name}: no choice {word!r}", f"choices: {', '.join(known)}")
    depth_of(config)
    for name in ("gamma", "gae_lambda", "dirichlet_fraction", "resampling_ess_threshold"):
        number = getattr(config, name)  # traced ones were checked as leaves of a configuration
        if isinstance(number, (int, float)) and not 0.0 <= number <= 1.0:
            raise ConfigError(f"search.{name}: {number} is not in [0, 1]", "give a number from 0 to 1")
    if factored and config.root != "iid":
        raise ConfigError(
            f"search.root: {config.root} takes distinct actions, and this environment's action has several factors",
            "use root: iid",
        )


def check_model(model: SearchModel) -> None:
    """Refuses a model whose particles would step with the randomness that will come true, unless it says so.

    Raises:
        ConfigError: neither `rekey` nor `deterministic`.
    """
    if model.rekey is None and not model.deterministic:
        raise ConfigError(
            "search: a SearchModel without rekey is searched with the randomness that will come true",
            "give it rekey=..., or deterministic=True if its step draws nothing",
        )


def check_call(root: Root, temperature: Temperature) -> None:
    """Refuses what a search cannot begin from, as far as shapes and plain numbers show it.

    Raises:
        ConfigError: a leaf of the root without the leading axis N, or a temperature that is not above 0, or neither a
            scalar nor [N].
    """
    num_envs = root.observation.action_mask.shape[:1]
    if any(leaf.shape[:1] != num_envs or leaf.ndim == 0 for leaf in jax.tree.leaves(root)):
        raise ConfigError(
            "search: leaves of the root differ in their first axis, which is that of the environments searched from",
            "for a single one, add it: jax.tree.map(lambda x: x[None], root)",
        )
    if isinstance(temperature, (int, float)) and not temperature > 0.0:
        raise ConfigError(f"search: weights cannot have a temperature of {temperature}", "give a number above 0")
    if not callable(temperature) and jnp.shape(temperature) not in ((), num_envs):
        raise ConfigError(
            f"search: a temperature of shape {jnp.shape(temperature)} for {num_envs[0]} environments",
            "give one number, or one for each",
        )


def depth_of(config: SearchConfig) -> int:
    """The most model steps a particle takes.

    Raises:
        ConfigError: a size below 1, or `full` without an end.
    """
    horizon = config.max_depth if config.search_depth == "full" else config.search_depth
    if horizon is None:
        raise ConfigError(
            "search_depth: full needs an end, and this environment states no time limit",
            "give a number of model steps, or max_episode_steps",
        )
    if min(horizon, config.num_particles, config.resampling_period) < 1:
        sizes = f"search_depth {horizon}, num_particles {config.num_particles}, period {config.resampling_period}"
        raise ConfigError(f"search: {sizes} must be at least 1", "raise what is below 1")
    return horizon


def may_resample(config: SearchConfig) -> bool:
    """Whether particles can be resampled within the search, so that their root actions may differ from those drawn."""
    if config.resampling == "none" or depth_of(config) < 2:
        return False
    return config.resampling == "ess" or config.resampling_period < depth_of(config)
