"""Jumanji environments as ours: time steps, actions, masks and array types converted at this one door.

Three things are changed and no others. The action becomes one categorical or several (`action_form`). The observation
is split into what is seen and what is legal. Every leaf gets a strong type, because several of Jumanji's states hold
weakly typed Python numbers, which cannot be carried through a `lax.scan`. Rewards, discounts and ends are Jumanji's.

Fully masked rows: a factor of an action may have no legal value while its episode goes on (an agent of MMST that can go
nowhere), or the whole action (FlatPack when no block fits any more), and a finished episode usually has none at all.
Such rows are passed on as they are; a policy must give them a finite, harmless distribution.

Importing jumanji starts the JAX backend, so it is imported inside functions only.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs import jumanji_tasks
from stoix_like.errors import UnsupportedEnvironmentError
from stoix_like.types import ActionSpec, Array, Environment, EnvState, Key, Observation, TimeStep

GIF_DOTS_PER_INCH = 48  # Jumanji's figures are 10 x 10 inches: 480 x 480 pixels keeps a long episode below 1 MB


class ActionForm(NamedTuple):
    """How our action maps to Jumanji's. `joint_shape` is set where one categorical stands for a product of several."""

    spec: ActionSpec
    joint_shape: tuple[int, ...] | None
    dtype: Any


def from_jumanji(env: Any, task_id: str) -> Environment:
    """A Jumanji environment as an Environment.

    Per-agent rewards of a cooperative task (Connector) become one: their sum, and the largest discount over agents,
    as Jumanji's own `MultiToSingleWrapper` does (jumanji 1.1.2, jumanji/wrappers.py).

    Args:
        env: an instance of `jumanji.Environment`.
        task_id: the name in logs; what is known of the task is looked up by the class of `env`.

    Raises:
        UnsupportedEnvironmentError: continuous actions, a mask that fits no categorical, or per-agent rewards.
    """
    task = jumanji_tasks.task_of(env)
    with _inside_jumanji():
        first = jax.eval_shape(env.reset, jax.random.key(0))[1]
    mask = _fields(first.observation).get("action_mask")
    form = action_form(env.action_spec, None if mask is None else mask.shape, task.is_multi_agent, task_id)
    _refuse_vector_reward(env, task, task_id)
    return Environment(
        reset=_make_reset(env, form),
        step=_make_step(env, form),
        action_spec=form.spec,
        task_id=task_id,
        can_truncate=task.can_truncate,
        deterministic=task.is_deterministic,
        episode_metrics=task.episode_metrics,
        rekey=rekey,
        observation_adapter=task.observation_adapter,
        time_limit=task.time_limit(env),
        animate=_make_animate(env),
        joint_shape=form.joint_shape,
        hidden_state=task.hidden_state(env),
    )


def action_form(spec: Any, mask_shape: tuple[int, ...] | None, is_multi_agent: bool, task_id: str) -> ActionForm:
    """The categorical form of a Jumanji action spec.

    A discrete action is a categorical. A product of several whose mask covers the product is one categorical over it,
    flattened row-major, so BinPack's [EMS, items] makes action a = (a // items, a % items). A mask with one row of K
    values per factor makes independent categoricals. No mask: everything is legal, over the product.

    A (2, 2) mask over two factors of two values fits both readings: it is read as a product, except in tasks whose
    factors are known to be agents or machines. (MultiCVRP's action is declared as bounded integers, one more than its
    mask has columns; the mask is believed.)
    """
    from jumanji import specs

    if isinstance(spec, specs.DiscreteArray):
        return ActionForm(ActionSpec(int(spec.num_values)), None, spec.dtype)
    num_values = _values_per_factor(spec, task_id)
    if mask_shape is None or (mask_shape == num_values and not (is_multi_agent and len(num_values) == 2)):
        return ActionForm(ActionSpec(int(np.prod(num_values))), num_values, spec.dtype)
    num_columns = mask_shape[-1]
    fits = {num_columns} if isinstance(spec, specs.MultiDiscreteArray) else {num_columns, num_columns + 1}
    if mask_shape == (len(num_values), num_columns) and set(num_values) <= fits and len(set(num_values)) == 1:
        return ActionForm(ActionSpec(num_columns, len(num_values)), None, spec.dtype)
    raise UnsupportedEnvironmentError(
        f"{task_id}: a mask of shape {mask_shape} does not fit actions of {num_values} values",
        "the mask must cover the product of all values, or have one row of values per factor",
    )


def _values_per_factor(spec: Any, task_id: str) -> tuple[int, ...]:
    from jumanji import specs

    if isinstance(spec, specs.MultiDiscreteArray) and np.ndim(spec.num_values) == 1:
        return tuple(int(n) for n in np.asarray(spec.num_values))
    is_bounded_integer = isinstance(spec, specs.BoundedArray) and np.issubdtype(spec.dtype, np.integer)
    if is_bounded_integer and len(spec.shape) == 1 and not np.any(np.asarray(spec.minimum)):
        return tuple(int(n) + 1 for n in np.broadcast_to(np.asarray(spec.maximum), spec.shape))
    raise UnsupportedEnvironmentError(
        f"{task_id}: its actions are {np.dtype(spec.dtype).name} arrays of shape {tuple(spec.shape)},"
        " and only discrete actions are supported",
        "choose a task with discrete actions, such as Maze-v0 or BinPack-v2",
    )


def _refuse_vector_reward(env: Any, task: jumanji_tasks.Task, task_id: str) -> None:
    if env.reward_spec.shape and not task.is_cooperative:
        raise UnsupportedEnvironmentError(
            f"{task_id}: its reward is a vector of shape {tuple(env.reward_spec.shape)}, one entry per agent",
            "choose a task with one reward, or wrap it in jumanji.wrappers.MultiToSingleWrapper and use from_jumanji",
        )


@contextlib.contextmanager
def _inside_jumanji() -> Iterator[None]:
    """Jumanji broadcasts scalars against arrays freely, and BinPack casts float coordinates to integers.

    The cast warns. It is exact: the floats come from infinite half-spaces and are whole millimetres when stored.
    Some viewers warn of an argument that they pass to matplotlib themselves.
    """
    with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
        warnings.filterwarnings("ignore", "You passed in an explicit save_count", UserWarning)
        yield


def _make_reset(env: Any, form: ActionForm) -> Callable[[Key], tuple[EnvState, TimeStep]]:
    def reset(key: Key) -> tuple[EnvState, TimeStep]:
        with _inside_jumanji():
            state, timestep = env.reset(key)
            return _strong(state), _convert(timestep, form)

    return jax.jit(reset)


def _make_step(env: Any, form: ActionForm) -> Callable[[EnvState, Array], tuple[EnvState, TimeStep]]:
    def step(state: EnvState, action: Array) -> tuple[EnvState, TimeStep]:
        with _inside_jumanji():
            state, timestep = env.step(state, to_jumanji_action(form, action))
            return _strong(state), _convert(timestep, form)

    return jax.jit(step)


def to_jumanji_action(form: ActionForm, action: Array) -> Array:
    """Jumanji's action for ours: a joint index is unravelled row-major, the rest only changes type."""
    if form.joint_shape is not None:
        action = jnp.stack(jnp.unravel_index(action, form.joint_shape))
    return action.astype(form.dtype)


def _convert(timestep: Any, form: ActionForm) -> TimeStep:
    view = _fields(timestep.observation)
    mask = view.pop("action_mask", None)
    shape = form.spec.mask_shape
    mask = jnp.ones(shape, bool) if mask is None else jnp.reshape(mask, shape).astype(bool)
    reward = jnp.sum(jnp.asarray(timestep.reward, jnp.float32))  # over agents; one agent's is unchanged
    discount = jnp.max(jnp.asarray(timestep.discount, jnp.float32))
    step_type = jnp.asarray(timestep.step_type, jnp.int8)
    extras = dict(timestep.extras or {})
    converted: TimeStep = _strong(TimeStep(step_type, reward, discount, Observation(view, mask), extras))
    return converted


def _fields(observation: Any) -> dict[str, Any]:
    """The observation's fields by name, the mask among them. A bare array is called `observation`."""
    if hasattr(observation, "_asdict"):
        return dict(observation._asdict())
    return {"observation": observation}


def _strong(tree: Any) -> Any:
    return jax.tree.map(_strong_leaf, tree)


def _strong_leaf(leaf: Any) -> Array:
    array = jnp.asarray(leaf)
    return (
        array if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(array, array.dtype)
    )


def rekey(state: EnvState, key: Key) -> EnvState:
    """The state with its `key` replaced: every state of Jumanji has one, and it is all the randomness `step` uses."""
    is_typed = jnp.issubdtype(state.key.dtype, jax.dtypes.prng_key)
    return state.replace(key=key if is_typed else jax.random.key_data(key))


def _make_animate(env: Any) -> Callable[[list[EnvState], str], None]:
    def animate(states: list[EnvState], path: str) -> None:
        # The animation is saved here and not by Jumanji, which would look for ffmpeg first and say so on the terminal.
        with _inside_jumanji():
            env.animate(states, interval=200).save(path, writer="pillow", dpi=GIF_DOTS_PER_INCH)
        env.close()

    return animate
