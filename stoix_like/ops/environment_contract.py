"""What every environment promises and an abstract evaluation of its two functions can show. Nothing is computed.

Learners and evaluations carry states and observations through loops, so that a broken promise would end in JAX's words
about carries. What only playing can show, such as a truncation that was not declared, has its words here too.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.errors import UnsupportedEnvironmentError
from stoix_like.types import Environment, TimeStep

_SAME = "step must return what reset returns: the same structure, shapes and types"


def check_environment(env: Environment, *, carries_timestep: bool = False) -> None:
    """Refuses an environment that no learner can play.

    Args:
        env: raw.
        carries_timestep: whether `reset` and `step` must agree on the whole time step, and not only on state and
            observation.

    Raises:
        UnsupportedEnvironmentError: a leaf of another shape or type after `step` than after `reset`, a mask that does
            not fit the action, an observation without an array, a vector reward, or `extras["next_obs"]` of an
            environment that does not say that it can truncate.
    """
    state, first = jax.eval_shape(env.reset, jax.random.key(0))
    _check_first(env, first)
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


def undeclared_truncations(count: int, task_id: str) -> UnsupportedEnvironmentError:
    """What to raise where `count` episodes ended by LAST with a discount above 0 and `can_truncate` is False."""
    return UnsupportedEnvironmentError(
        f"{task_id}: {count:,} episode(s) ended by LAST with a discount above 0, and can_truncate is False: the"
        " learner would bootstrap from the first observation of the next level",
        "set can_truncate=True if episodes are cut off, or discount 0 where they end",
    )


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
