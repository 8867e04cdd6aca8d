"""What every environment promises and an abstract evaluation of its two functions can show. Nothing is computed.

Learners and evaluations carry states and observations through loops, so that a broken promise would end in JAX's words
about carries. What only playing can show stands in `breaches`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.errors import UnsupportedEnvironmentError
from stoix_like.types import EPISODE_NAMES, Environment, TimeStep

_SAME = "step must return what reset returns: the same structure, shapes and types"


def check_environment(env: Environment, *, carries_timestep: bool = False) -> None:
    """Refuses an environment that no learner can play.

    Args:
        env: raw.
        carries_timestep: whether `reset` and `step` must agree on the whole time step, and not only on state and
            observation.

    Raises:
        UnsupportedEnvironmentError: a leaf of another shape or type after `step` than after `reset`, a mask that does
            not fit the action, an observation without an array or with an empty one, a vector reward, a metric of the
            environment that is no number or has the name of one of ours, or `extras["next_obs"]` of an environment
            that does not say that it can truncate.
    """
    state, first = jax.eval_shape(env.reset, jax.random.key(0))
    _check_first(env, first)
    _check_not_empty(env, "state", state)
    _check_not_empty(env, "observation.agent_view", first.observation.agent_view)
    _check_metrics(env, jax.eval_shape(env.episode_metrics, state, first))
    action = jax.ShapeDtypeStruct(env.action_spec.shape, jnp.int32)
    next_state, following = jax.eval_shape(env.step, state, action)
    _check_same(env, "state", state, next_state)
    _check_same(env, "observation", first.observation, following.observation)
    _check_fields(env, "reset", first)
    _check_fields(env, "step", following)
    if not env.can_truncate and "next_obs" in {*first.extras, *following.extras}:
        raise UnsupportedEnvironmentError(
            f"{env.task_id}: extras['next_obs'] requires can_truncate=True",
            "set can_truncate=True where a LAST step may have a discount above 0, or leave next_obs out",
        )
    if carries_timestep:
        _check_same(env, "timestep", first, following)


def _check_first(env: Environment, first: TimeStep) -> None:
    view, mask = first.observation.agent_view, first.observation.action_mask
    spec = env.action_spec
    if spec.num_values < 1 or (spec.num_factors is not None and spec.num_factors < 1):
        raise UnsupportedEnvironmentError(f"{env.task_id}: {spec} has no actions", "give it at least one value")
    if sum(leaf.size for leaf in jax.tree.leaves(view)) == 0:
        raise UnsupportedEnvironmentError(
            f"{env.task_id}: observation.agent_view is empty", "show the policy something, a constant if need be"
        )
    shape = None if mask is None else mask.shape
    if shape != env.action_spec.mask_shape:
        raise UnsupportedEnvironmentError(
            f"{env.task_id}: observation.action_mask has the shape {shape}, and {env.action_spec} needs"
            f" {env.action_spec.mask_shape}",
            "give the mask an entry for every value of the action, or the ActionSpec the number of entries",
        )
    if mask is not None and mask.dtype != bool:
        raise UnsupportedEnvironmentError(
            f"{env.task_id}: observation.action_mask is {mask.dtype}, not bool", "make it bool: mask.astype(bool)"
        )


def _check_not_empty(env: Environment, name: str, tree: Any) -> None:
    """Refuses an array without elements: a checkpoint cannot hold it."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if leaf.size == 0:
            what = f"{name}.{jax.tree_util.keystr(path, simple=True, separator='.')}".rstrip(".")
            raise UnsupportedEnvironmentError(
                f"{env.task_id}: {what} has the shape {leaf.shape}, and no elements", "leave it out"
            )


def _check_metrics(env: Environment, metrics: Any) -> None:
    if not isinstance(metrics, dict) or not all(isinstance(name, str) for name in metrics):
        raise UnsupportedEnvironmentError(
            f"{env.task_id}: episode_metrics does not return a dictionary of names", "return {} if there are none"
        )
    for name, value in metrics.items():
        if name in EPISODE_NAMES:
            raise UnsupportedEnvironmentError(
                f"{env.task_id}: episode_metrics has '{name}', which is the name of a metric of every run",
                f"choose another name, such as own_{name}",
            )
        if jnp.shape(value) or value.dtype.kind not in "biuf":
            raise UnsupportedEnvironmentError(
                f"{env.task_id}: the episode metric '{name}' is {value.dtype}{list(value.shape)}",
                "return one number for each name, of shape ()",
            )


def _check_fields(env: Environment, function: str, timestep: TimeStep) -> None:
    for name in ("step_type", "reward", "discount"):
        if shape := jnp.shape(getattr(timestep, name)):
            raise UnsupportedEnvironmentError(
                f"{env.task_id}: {name} has the shape {shape} after {function}", "make it one number, of shape ()"
            )
    if not isinstance(timestep.extras, dict):
        kind = type(timestep.extras).__name__
        raise UnsupportedEnvironmentError(
            f"{env.task_id}: extras is {kind} after {function}", "return a dictionary, {} if there is nothing in it"
        )


def _check_same(env: Environment, name: str, before: Any, after: Any) -> None:
    old, new = _leaves(name, before), _leaves(name, after)
    for path in [*old, *new]:
        if old.get(path) != new.get(path):
            raise UnsupportedEnvironmentError(
                f"{env.task_id}: {path} is {old.get(path, 'not there')} after reset, and"
                f" {new.get(path, 'not there')} after step",
                _SAME,
            )
    forms: list[Any] = [jax.tree.structure(tree) for tree in (before, after)]
    if forms[0] != forms[1]:  # for example a tuple and a list: their leaves are equal
        raise UnsupportedEnvironmentError(f"{env.task_id}: {name} has another structure after step", _SAME)


def _leaves(name: str, tree: Any) -> dict[str, str]:
    """{path: type and shape}, such as {"state.steps": "int32[]"}. Weak types count as strong ones, as for loops."""
    return {
        f"{name}.{jax.tree_util.keystr(path, simple=True, separator='.')}".rstrip(
            "."
        ): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
