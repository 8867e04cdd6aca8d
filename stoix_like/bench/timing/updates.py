"""Trains one update at a time, for timing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from stoix_like.bench.timing.measure import peak_bytes
from stoix_like.config.sections.runs import PPOConfig, SPOConfig
from stoix_like.runtime.profiling.phase_times import Scopes, module_name, scopes_of, scopes_of_events
from stoix_like.runtime.profiling.traces import ProfileEvent, read_events
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training.profile import Profile


def preset_config(preset: str) -> Any:
    """The configuration of a shipped preset: `ppo/maze`."""
    kind, algorithm = (SPOConfig, "spo") if preset.startswith("spo/") else (PPOConfig, "ppo")
    return load_config(kind, algorithm, ["--config", preset], f"{algorithm}/quick").config


class Updates:
    """A training that is advanced by one update with each call."""

    def __init__(self, config: PPOConfig | SPOConfig) -> None:
        algorithm = "spo" if isinstance(config, SPOConfig) else "ppo"
        learner = build.build(algorithm, config).learner
        self._state = jax.jit(learner.init)(jax.random.key(0))
        self._program = chunk.compile_chunk(learner, 1, self._state)
        self.memory_note = f"peak memory {peak_bytes(self._program) / 2**20:,.0f} MiB"

    def __call__(self) -> Any:
        self._state, metrics = self._program(self._state, np.int32(1))
        return metrics

    def profiled(self, updates: int) -> Profile:
        """The profile of some updates, with tracing."""
        with tempfile.TemporaryDirectory() as folder:
            profile = Profile(Path(folder))
            program = profile.wrap(self._program)
            for length in (1, updates):  # the second is traced
                self._state, *_ = program(self._state, length)
        return profile

    def traced(self) -> tuple[list[list[ProfileEvent]], dict[str, Scopes]]:
        """(the events of one update, a list for each thread or stream, the scopes of their instructions)."""
        jax.block_until_ready(self())  # warms up
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(self())
            text = self._program.as_text() or ""
            (trace,) = Path(folder).rglob("*.xplane.pb")
            lines = read_events(trace, module_name(text))
        return lines, scopes_of_events({event.instruction for line in lines for event in line}, scopes_of(text))
