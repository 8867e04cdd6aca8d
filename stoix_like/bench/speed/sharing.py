"""`python -m stoix_like.bench.speed.sharing PRESET N PLATFORM` prints the rate of updates on N devices."""

from __future__ import annotations

import json
import sys

import jax
import numpy as np

from stoix_like.bench.timing.measure import time_interleaved
from stoix_like.bench.timing.updates import preset_config
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.training import chunk, start


def main(preset: str, count: str, platform: str) -> None:
    """Prints the steps per second of whole updates and their spread as one line of JSON."""
    hardware = HardwareConfig(num_devices=int(count), device_type=platform)  # type: ignore[arg-type]
    found = devices.select(hardware, compile_cache=False)
    from stoix_like.runtime.runs import build  # starts the backend, so it is imported after the device is selected

    config = preset_config(preset)
    learner = build.build(preset.partition("/")[0], config).learner
    state = start.initial_state(learner, config, found)[0]()
    program = chunk.compile_chunk(learner, 1, state)

    def update() -> jax.Array:
        nonlocal state
        state, metrics = program(state, np.int32(1))
        return jax.tree.leaves(metrics)[0]

    taken = time_interleaved({"update": update}, repetitions=9)["update"]
    print(json.dumps({"rate": steps_per_update(config) / taken.seconds, "spread": taken.spread}))


if __name__ == "__main__":
    main(*sys.argv[1:])
