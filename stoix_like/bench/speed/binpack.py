"""BinPack's step compared with Jumanji's: whether both give the same bits, and how fast they are."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.bench.timing.measure import Measurement, comparison_row, significant_ratio, time_interleaved
from stoix_like.envs import registry
from stoix_like.evaluation import baselines, parity
from stoix_like.ops import trees
from stoix_like.types import Array, Environment, EnvState, Policy

EPISODES_AT_ONCE = 500
#: {size: (task, its arguments)} on which both must agree: items, spaces stored and observed, generator.
SIZES: Mapping[str, tuple[str, dict[str, int]]] = {
    "10_items_20_ems": ("BinPack-v2", {"max_num_items": 10, "max_num_ems": 20, "obs_num_ems": 20}),
    "20_items_20_ems": ("BinPack-v2", {"max_num_ems": 20, "obs_num_ems": 20}),
    "20_items_40_ems": ("BinPack-v2", {}),
    "30_items_40_ems": ("BinPack-v2", {"max_num_items": 30}),
    "BinPack-v0": ("BinPack-v0", {}),
}
#: {name: (policy, number of episodes of each size)}.
EPISODES: Mapping[str, tuple[Policy, int]] = {
    "random_legal": (baselines.random_legal, 2000),
    "greedy": (baselines.largest_item_first, 500),
}


def parity_suite() -> list[Measurement]:
    """The number of leaves of states and time steps that differ from Jumanji's in any bit; it must be 0."""
    rows = []
    for size, (task_id, kwargs) in SIZES.items():
        fast, exact = (registry.make(task_id, kwargs=kwargs, exact_reference=choice) for choice in (False, True))
        for name, (policy, num_episodes) in EPISODES.items():
            rows.append(_parity_row(f"binpack_parity/{size}/{name}", fast, exact, policy, num_episodes))
    return rows + [_level_parity_row(task_id) for task_id in ("Maze-v0", "BinPack-v2", "BinPack-v0")]


def _level_parity_row(task_id: str, num_batches: int = 100, batch_size: int = 1000) -> Measurement:
    """The number of levels of 100,000 keys that differ from Jumanji's in any bit; it must be 0."""
    fast, exact = (registry.make(task_id, exact_reference=choice) for choice in (False, True))

    @jax.jit
    def differing(key: Any) -> Array:
        keys = jax.random.split(key, batch_size)
        levels = [jax.vmap(env.reset)(keys) for env in (fast, exact)]
        leaves = [[trees.key_data(leaf).reshape(batch_size, -1) for leaf in jax.tree.leaves(level)] for level in levels]
        return functools.reduce(operator.or_, (jnp.any(a != b, axis=1) for a, b in zip(*leaves, strict=True))).sum()

    different = sum(int(differing(jax.random.key(i))) for i in range(num_batches))
    note = f"different ones of {num_batches * batch_size:,}, in any leaf of state and first time step"
    return Measurement(f"level_parity/{task_id}", different, "levels", note=note)


def _parity_row(name: str, fast: Environment, exact: Environment, policy: Policy, num_episodes: int) -> Measurement:
    @jax.jit
    def play(key: Any) -> parity.Parity:
        level_key, play_key = jax.random.split(key)
        levels = jax.random.split(level_key, EPISODES_AT_ONCE)
        return parity.compare(fast, exact, policy, levels, play_key, _all_slots_full)

    batches = [jax.device_get(play(jax.random.key(i))) for i in range(num_episodes // EPISODES_AT_ONCE)]
    different = sum(sum(batch.different_leaves().values()) for batch in batches)
    steps = sum(int(batch.num_steps) for batch in batches)
    full = sum(int(batch.num_watched) for batch in batches)
    note = f"different leaves in {num_episodes:,} episodes, {steps:,} steps, {full:,} of them with all slots full"
    return Measurement(name, different, "leaves", note=note)


def _all_slots_full(state: EnvState) -> Array:
    return jnp.all(state.ems_mask)


def step_rows(num_steps: int = 12) -> list[Measurement]:
    """Steps per second of the bare step, batched, on the same random legal actions from fresh levels."""
    rows = []
    for num_envs in (64, 1024):
        fast, exact = (registry.make("BinPack-v2", exact_reference=choice) for choice in (False, True))
        states, actions = _random_episodes(fast, num_envs, num_steps)
        functions = {"ours": _replay(fast, states, actions), "theirs": _replay(exact, states, actions)}
        timings = time_interleaved(functions, repetitions=9)
        note = "reference: Jumanji's own step, same states and actions"
        rows.append(comparison_row(f"binpack_step/{num_envs}", timings, num_envs * num_steps, "steps/s", note))
    return rows


def compile_row(num_envs: int = 64) -> Measurement:
    """Seconds to trace and compile the batched step, without a cache."""
    functions = {}
    for who, exact in (("ours", False), ("theirs", True)):
        env = registry.make("BinPack-v2", exact_reference=exact)
        states, _ = jax.eval_shape(
            jax.vmap(env.reset), jax.eval_shape(lambda: jax.random.split(jax.random.key(0), num_envs))
        )
        functions[who] = functools.partial(_compile, env, states, jax.ShapeDtypeStruct((num_envs,), jnp.int32))
    timings = time_interleaved(functions, repetitions=3)
    note = "reference: Jumanji's own step"
    ratio = significant_ratio(timings["ours"], timings["theirs"])
    ours, theirs = timings["ours"], timings["theirs"]
    return Measurement("binpack_step_compile", ours.seconds, "s", ours.spread, theirs.seconds, ratio, note=note)


def _compile(env: Environment, states: EnvState, actions: Any) -> None:
    jax.clear_caches()
    jax.jit(jax.vmap(env.step)).lower(states, actions).compile()


def _random_episodes(env: Environment, num_envs: int, num_steps: int) -> tuple[EnvState, Array]:
    """(initial states [N], random legal actions [T, N] of their episodes)."""

    def step(carry: Any, key: Any) -> Any:
        state, timestep = carry
        action = baselines.random_legal((), state, timestep.observation, key, False)
        return jax.vmap(env.step)(state, action), action

    @jax.jit
    def play(key: Any) -> Any:
        level_key, play_key = jax.random.split(key)
        first = jax.vmap(env.reset)(jax.random.split(level_key, num_envs))
        return first[0], jax.lax.scan(step, first, jax.random.split(play_key, num_steps))[1]

    episodes: tuple[EnvState, Array] = play(jax.random.key(0))
    return episodes


def _replay(env: Environment, states: EnvState, actions: Array) -> Callable[[], Any]:
    @jax.jit
    def replay(states: EnvState, actions: Array) -> Any:
        def step(states: EnvState, action: Array) -> Any:
            states, timestep = jax.vmap(env.step)(states, action)
            return states, jax.tree.map(lambda x: jnp.sum(x.astype(jnp.float32)), timestep)

        return jax.lax.scan(step, states, actions)

    return lambda: replay(states, actions)
