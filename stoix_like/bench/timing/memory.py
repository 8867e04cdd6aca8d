"""`python -m stoix_like.bench.timing.memory` prints the resident bytes of its process after 20 chunks and after 220."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import jax

from stoix_like.bench.timing.updates import Updates
from stoix_like.config.sections.runs import PPOConfig
from stoix_like.runtime.runs.sources import load_config

CHUNKS = (20, 220)


def main() -> None:
    """Trains the MLP on Maze with 16 environments and one update per chunk."""
    config = load_config(PPOConfig, "ppo", ["--config", "ppo/maze_mlp", "--num-envs", "16"], "ppo/quick").config
    run = Updates(config)
    sizes = []
    for _ in range(CHUNKS[1]):
        jax.block_until_ready(run())
        gc.collect()
        sizes.append(resident_bytes())
    print(sizes[CHUNKS[0] - 1], sizes[CHUNKS[1] - 1])


def resident_bytes(process: int | str = "self") -> int:
    """The memory that a process holds, by its number."""
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
