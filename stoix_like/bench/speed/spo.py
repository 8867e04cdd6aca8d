"""The speed of SPO: whole updates compared with the matrix-product peak, and the search alone by its size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from stoix_like import replay
from stoix_like.algorithms import searching, spo
from stoix_like.bench.timing.measure import Measurement, time_interleaved
from stoix_like.bench.timing.peaks import against_peak
from stoix_like.bench.timing.updates import Updates, preset_config
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.layers import resolve
from stoix_like.config.sections.runs import SPOConfig
from stoix_like.networks.cells import NUM_DIRECTIONS
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
    yield _against_peak("spo_sokoban", preset_config("spo/sokoban"), NUM_DIRECTIONS)
    yield _against_peak("spo_sudoku", preset_config("spo/sudoku"))
    for name, preset in (("maze", "spo/maze"), ("frozen_lake", "spo/frozen_lake"), ("binpack_quick", "spo/quick")):
        yield _whole(f"spo_{name}", preset)
    yield from _searches("spo/maze_mlp")
    yield from _searches("spo/quick")
    yield _replay_bytes("spo/binpack", 65_536)


def _against_peak(name: str, config: SPOConfig, views: int = 1) -> Measurement:
    """A whole update and the matrix-product peak at the shapes of the search. `views`: rows of each observation."""
    rows = config.environment.num_envs * config.spo.num_particles * views
    updates = Updates(config)
    row = against_peak(name, config, updates, rows)
    model_steps = row.value * config.spo.num_particles * int(config.spo.search_depth)
    return row._replace(note=f"{row.note}; {model_steps:,.0f} model steps/s; {_shares(updates)}; {updates.memory_note}")


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
