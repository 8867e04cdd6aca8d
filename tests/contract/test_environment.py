"""What every Environment promises, whoever made it: one battery over all of them. A new environment is one more entry.

Played are uniformly drawn legal actions. tests/envs holds what each environment does; this, what all have in common.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_fits_a_scan
from support.configs import SMALL_TASKS
from support.marks import quick

import stoix_like as sl
from stoix_like.envs.probes import PROBES
from stoix_like.types import FIRST, LAST

NUM_ENVS, NUM_STEPS = 16, 60
#: {task id: keyword arguments}, small where a size can be given. BinPack takes too long to compile for this: its steps
#: and levels are compared with Jumanji's own in tests/envs.
ENTRIES: dict[str, dict[str, Any]] = {f"probe/{name}": {} for name in PROBES} | {
    **{task: SMALL_TASKS[task] for task in ("Maze-v0", "Snake-v1", "JobShop-v0")},
    **{"FrozenLake-text-v0": {}, "Sokoban-text-v0": {}, "Sudoku-text-v0": {}},
}
LIMITED = ("Snake-v1", "probe/tagged_levels")  # with a truncating limit of ours as well


class Played(NamedTuple):
    """NUM_STEPS steps of NUM_ENVS environments, which stay where they end: [T, N] each."""

    step_type: Any
    reward: Any
    discount: Any
    was_over: Any  # whether the episode had ended before the step
    metrics: Any


def legal_actions(key, mask):
    """Actions [N] or [N, F], drawn uniformly among the legal ones."""
    return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf)).astype(jnp.int32)


def play(env, key):
    """(first time steps, Played)."""
    reset_key, act_key = jax.random.split(key)
    start = jax.vmap(env.reset)(jax.random.split(reset_key, NUM_ENVS))

    def step(carry, key):
        state, timestep, is_over = carry
        mask = timestep.observation.action_mask
        after = jax.vmap(env.step)(state, legal_actions(key, mask))
        held = jax.tree.map(lambda old, new: jnp.where(_rows(is_over, new), old, new), (state, timestep), after)
        told = Played(*after[1][:3], is_over, jax.vmap(env.episode_metrics)(*after))
        return (*held, is_over | after[1].last()), told

    _, played = jax.lax.scan(step, (*start, jnp.zeros(NUM_ENVS, bool)), jax.random.split(act_key, NUM_STEPS))
    return start[1], played


def _rows(flags, like):
    return flags.reshape(-1, *[1] * (like.ndim - 1))


@functools.cache
def made(name):
    """(environment, first time steps, what was played), once for the whole battery."""
    task, _, limit = name.partition("|")
    env = sl.make_env(task, kwargs=ENTRIES[task], max_episode_steps=int(limit) if limit else None)
    with jax.numpy_rank_promotion("allow"):  # jumanji's own arithmetic
        return env, *jax.device_get(jax.jit(functools.partial(play, env))(jax.random.key(0)))


#: One of each kind: choices, truncations, ends at different steps, ours and Jumanji's, factors, with a limit of ours.
QUICK = ("probe/action_observation_reward", "probe/truncated_constant", "Maze-v0", "JobShop-v0", "Snake-v1|7")


@pytest.fixture(params=quick([*ENTRIES, *(f"{task}|7" for task in LIMITED)], [*QUICK, "probe/tagged_levels"]))
def entry(request):
    return made(request.param)


def test_a_step_keeps_shapes_and_strong_types_and_masks_leave_a_choice_at_first(entry):
    """So that a state can be carried through a scan: the time step of `step` is of the form of that of `reset`."""
    env, first, _ = entry
    start = jax.eval_shape(env.reset, jax.random.key(0))
    after = jax.eval_shape(env.step, start[0], jax.ShapeDtypeStruct(env.action_spec.shape, jnp.int32))
    assert_fits_a_scan(start, after)
    _, timestep = start
    assert (timestep.step_type.dtype, timestep.reward.dtype, timestep.discount.dtype) == ("int8", "float32", "float32")
    assert timestep.reward.shape == timestep.discount.shape == timestep.step_type.shape == ()
    # Later there may be none: a snake can be caught in itself, and is dead after its next step, whatever that is.
    assert first.observation.action_mask.shape[1:] == env.action_spec.mask_shape
    assert first.observation.action_mask.dtype == bool
    assert first.observation.action_mask.any(-1).all()


def test_episodes_begin_once_and_end_as_declared_with_finite_rewards_and_metrics(entry):
    """discount 0 ends the return, and only a LAST step may have it: `is_last` and `discount` never contradict."""
    env, first, played = entry
    assert (first.step_type == FIRST).all()
    assert not (played.step_type == FIRST).any()  # nothing resets by itself
    lasting = ~played.was_over
    assert ((played.discount >= 0.0) & (played.discount <= 1.0)).all()
    ended = (played.step_type == LAST) & lasting
    assert (played.step_type[lasting & (played.discount == 0.0)] == LAST).all()
    assert env.can_truncate or not (ended & (played.discount > 0.0)).any()
    if env.time_limit is not None and env.time_limit <= NUM_STEPS:
        assert (played.step_type == LAST)[: env.time_limit].any(0).all()
    assert np.isfinite(played.reward).all()
    assert all(np.isfinite(values[ended]).all() for values in played.metrics.values())


def test_what_calls_itself_deterministic_draws_nothing(entry):
    """Its next observation and reward are the same whatever key the state was given."""
    env, *_ = entry
    if not env.deterministic:
        return

    @jax.jit
    def after(key):
        state, timestep = env.reset(jax.random.key(1))
        action = legal_actions(jax.random.key(2), timestep.observation.action_mask[None])[0]
        _, timestep = env.step(env.rekey(state, key), action)
        return timestep.observation, timestep.reward, timestep.discount

    with jax.numpy_rank_promotion("allow"):
        one, other = after(jax.random.key(3)), after(jax.random.key(4))
    jax.tree.map(np.testing.assert_array_equal, one, other)
