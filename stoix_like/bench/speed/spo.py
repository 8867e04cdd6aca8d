"""The speed of SPO: whole updates compared with the matrix-product peak, and the search alone by its size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from stoix_like import replay
from stoix_like.algorithms import searching, spo
from stoix_like.bench.timing.flops import network_flops
from stoix_like.bench.timing.measure import Measurement, matrix_product_peak, peak_flops, time_interleaved
from stoix_like.bench.timing.updates import Updates, preset_config
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.layers import resolve
from stoix_like.config.sections.runs import SPOConfig
from stoix_like.runtime.runs import build
from stoix_like.search import smc
from stoix_like.search.model import Root

PARTICLES = (4, 16, 64)
DEPTHS = (2, 4, 8)
SEARCHED_ENVS = 64


def spo_suite() -> Iterator[Measurement]:
    """Whole updates with separate and shared networks, presets, the search by particles and depth, the replay."""
    maze = preset_config("spo/maze_mlp")
    yield _against_peak("spo_maze_mlp", maze)
    yield _against_peak("spo_maze_mlp_shared", resolve(maze, {"shared_torso": True}))
    for name in ("maze", "frozen_lake", "sokoban", "sudoku"):
        yield _against_peak(f"spo_{name}", preset_config(f"spo/{name}"))
    yield _whole("spo_binpack_quick", "spo/quick")  # episodes to their end, for which no operations are counted
    yield from _searches("spo/maze_mlp")
    yield from _searches("spo/quick")
    yield _replay_bytes("spo/binpack", 65_536)


def flops_per_step(config: SPOConfig) -> float:
    """Operations in matrix products per environment step of SPO: its search, and its share of the gradient steps.

    A search computes policy and value at the root and after every model step but the last, and there the value. A
    gradient step learns from B * L rows, computes the target networks on them, and B bootstrap values.
    """
    flops, section, core = network_flops(config), config.spo, config.training_core
    depth = int(section.search_depth)
    searching = flops.forward + section.num_particles * ((depth - 1) * flops.forward + flops.critic)
    rows = section.batch_size * section.sample_sequence_length
    learning = rows * (flops.learning + flops.forward) + section.batch_size * flops.critic
    return searching + core.epochs * core.num_minibatches * learning / steps_per_update(config)


def _against_peak(name: str, config: SPOConfig) -> Measurement:
    """A whole update and the matrix-product peak at the shapes of the search, measured alternately."""
    width = config.architecture.hidden_dim
    rows = config.environment.num_envs * config.spo.num_particles
    updates, steps = Updates(config), steps_per_update(config)
    timings = time_interleaved({"update": updates, "peak": matrix_product_peak(rows, width)}, repetitions=9)
    rate, spread = steps / timings["update"].seconds, timings["update"].spread
    model_steps = rate * config.spo.num_particles * int(config.spo.search_depth)
    note = f"{model_steps:,.0f} model steps/s; {_shares(updates)}; {updates.memory_note}"
    peak = peak_flops(rows, width) / timings["peak"].seconds
    needed = flops_per_step(config)
    note = f"ceiling: {peak / 1e9:.0f} GFLOP/s at {rows}x{width}x{width} / {needed / 1e6:.1f} MFLOP; {note}"
    return Measurement(name, rate, "steps/s", spread, ceiling=peak / needed, share=rate * needed / peak, note=note)


def _whole(name: str, preset: str) -> Measurement:
    config = preset_config(preset)
    updates = Updates(config)
    taken = time_interleaved({"update": updates}, repetitions=5)["update"]
    rate = steps_per_update(config) / taken.seconds
    note = f"preset {preset}; {_shares(updates)}; {updates.memory_note}"
    return Measurement(name, rate, "steps/s", taken.spread, note=note)


def _shares(updates: Updates) -> str:
    """`62% network, 20% optimise, ...` of a traced update."""
    profile = updates.profiled(1)
    if profile.times is None:
        return f"no profile: {profile.problem}"
    found = sorted(profile.times.shares.items(), key=lambda share: -share[1])
    return ", ".join(f"{share:.1%} {phase}" for phase, share in found if share > 0.0)


def _searches(preset: str) -> list[Measurement]:
    """Model steps per second of the search alone, from the first states of 64 environments."""
    config = preset_config(preset)
    sizes = [(particles, depth) for particles in PARTICLES for depth in DEPTHS]
    functions = {f"{p}x{d}": _one_search(config, p, d) for p, d in sizes}
    timings = time_interleaved(functions, repetitions=5)
    rows = []
    for particles, depth in sizes:
        taken = timings[f"{particles}x{depth}"]
        decisions = SEARCHED_ENVS / taken.seconds
        name = f"spo_search/{preset.removeprefix('spo/')}/{particles}x{depth}"
        note = f"{decisions:,.0f} decisions/s, {SEARCHED_ENVS} environments"
        rows.append(Measurement(name, decisions * particles * depth, "model steps/s", taken.spread, note=note))
    return rows


def _one_search(config: SPOConfig, num_particles: int, depth: int) -> Callable[[], Any]:
    env = build.make_env(config.environment)
    network = build.make_network(env, config)
    model = searching.search_model(env, network)
    section = searching.search_config(env, config.spo, config.training_core.gamma, config.training_core.gae_lambda)
    chosen = section._replace(num_particles=num_particles, search_depth=depth)
    states, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), SEARCHED_ENVS))
    params = jax.jit(network.init)(jax.random.key(1), timestep.observation)
    root = Root(states, timestep.observation)
    search = jax.jit(lambda params, key, root: smc.search(model, params, key, root, 0.1, chosen).root_weights)
    return lambda: search(params, jax.random.key(2), root)


def _replay_bytes(preset: str, steps: int) -> Measurement:
    """Megabytes of a replay of `steps` steps, from the shapes and types of one step."""
    config = preset_config(preset)
    env = build.make_env(config.environment)
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    batched = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), timestep.observation)
    one = replay.num_bytes(spo.example_step(env, spo.settings_of(env, config), batched))
    name = f"spo_replay/{config.environment.task_id}"
    return Measurement(name, one * steps / 1e6, "MB", note=f"{steps:,} steps of {one:,} bytes, preset {preset}")
