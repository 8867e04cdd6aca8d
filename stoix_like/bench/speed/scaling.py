"""How the speed of whole updates scales with environments, particles and devices."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax

from stoix_like.bench.timing.measure import Measurement, time_interleaved
from stoix_like.bench.timing.peaks import against_peak
from stoix_like.bench.timing.updates import Updates, preset_config
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.layers import resolve
from stoix_like.config.sections.runs import PPOConfig, SPOConfig
from stoix_like.runtime.console.installation import ROOT

NUM_ENVS = (64, 256, 1024, 4096, 16384)
NUM_PARTICLES = (4, 16, 64)
NUM_DEVICES = (1, 2, 4)
MAX_SECONDS = 12.0  # of an update; larger numbers of environments are left out
#: (row, preset, whether all layers are dense, so that there is a ceiling).
BY_ENVS = (
    ("ppo_maze_mlp", "ppo/maze_mlp", True),
    ("ppo_maze", "ppo/maze", False),
    ("ppo_binpack", "ppo/binpack", False),
    ("spo_maze_mlp", "spo/maze_mlp", True),
    ("spo_maze", "spo/maze", False),
    ("spo_binpack", "spo/binpack", False),
)
BY_DEVICES = ("ppo/maze_mlp", "spo/maze_mlp")


def updates_suite() -> Iterator[Measurement]:
    """Steps per second of whole updates: presets by environments, SPO by particles, both by devices."""
    yield from ppo_suite()
    yield from spo_suite()
    for preset in BY_DEVICES:
        yield from _by_devices(preset)


def ppo_suite() -> Iterator[Measurement]:
    """Whole updates of PPO by environments. Minibatches grow with them: their number is the preset's."""
    yield from _by_envs("ppo/")


def spo_suite() -> Iterator[Measurement]:
    """Whole updates of SPO by environments and by particles."""
    yield from _by_envs("spo/")
    for num_particles in NUM_PARTICLES:
        config = resolve(preset_config("spo/maze_mlp"), {"num_particles": num_particles})
        yield timed_row(f"scale/spo_maze_mlp/particles/{num_particles}", config, Updates(config), is_dense=True)


def _by_envs(algorithm: str) -> Iterator[Measurement]:
    """Updates with more and more environments. The replay grows too, because it must contain their rollouts."""
    for name, preset, is_dense in BY_ENVS:
        if not preset.startswith(algorithm):
            continue
        for num_envs in NUM_ENVS:
            config = with_envs(preset_config(preset), num_envs)
            row = timed_row(f"scale/{name}/envs/{num_envs}", config, Updates(config), is_dense)
            yield row
            if 4.0 * steps_per_update(config) / row.value > MAX_SECONDS:
                break


def with_envs(config: PPOConfig | SPOConfig, num_envs: int) -> Any:
    """The configuration with another number of environments, and a replay that holds their rollouts."""
    leaves: dict[str, Any] = {"num_envs": num_envs}
    if isinstance(config, SPOConfig):
        leaves["replay_buffer_size"] = config.spo.replay_buffer_size * num_envs // config.environment.num_envs
    return resolve(config, leaves)


def timed_row(name: str, config: Any, updates: Updates, is_dense: bool, repetitions: int = 5) -> Measurement:
    """Steps per second of whole updates; of dense networks also the ceiling by the matrix-product peak."""
    if is_dense:
        row = against_peak(name, config, updates, _rows_at_once(config), repetitions)
    else:
        taken = time_interleaved({"update": updates}, repetitions)["update"]
        row = Measurement(name, steps_per_update(config) / taken.seconds, "steps/s", taken.spread)
    return row._replace(note=f"{_model_steps(config, row.value)}{updates.memory_note}")


def _rows_at_once(config: Any) -> int:
    """The rows of the matrix products that take most of the time: a minibatch of PPO, all particles of SPO."""
    if isinstance(config, SPOConfig):
        return config.environment.num_envs * config.spo.num_particles
    return steps_per_update(config) // int(config.training_core.num_minibatches)


def _model_steps(config: Any, rate: float) -> str:
    if not isinstance(config, SPOConfig) or not isinstance(config.spo.search_depth, int):
        return ""
    return f"{rate * config.spo.num_particles * config.spo.search_depth:,.0f} model steps/s; "


def _by_devices(preset: str) -> Iterator[Measurement]:
    """Updates shared by several devices, each in a new process: JAX sets the number of CPU devices when it starts."""
    platform = jax.default_backend()
    counts = NUM_DEVICES if platform == "cpu" else [n for n in NUM_DEVICES if n <= jax.device_count()]
    first = None
    for count in counts:
        program = [sys.executable, "-m", "stoix_like.bench.speed.sharing", preset, str(count), platform]
        done = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        found = json.loads(done.stdout.splitlines()[-1])
        first = first or found["rate"]
        simulated = "simulated on the same cores; " if platform == "cpu" and count > 1 else ""
        note = f"{simulated}{found['rate'] / first:.2f} times one device"
        yield Measurement(
            f"scale/{preset.replace('/', '_')}/devices/{count}", found["rate"], "steps/s", found["spread"], note=note
        )
