"""A program of its own, on four devices: prints where a training state lies before and after two chunks.

Words: the algorithm, the number of seeds, the batch size of SPO's replay.
"""

import json
import sys

import jax

import stoix_like as sl
from stoix_like.runtime.training import chunk, start

SIZES = {"num_envs": 8, "rollout_length": 4, "num_minibatches": 2, "epochs": 1, "hidden_dim": 8}
SEARCH = {"num_particles": 3, "search_depth": 2, "num_layers": 1, "observation_adapter": "dense"}
REPLAY = {"replay_buffer_size": 64, "sample_sequence_length": 3}


def placement(algorithm, state, axis):
    """How the leaves that are spread out lie along the axis of environments, and whether the others are everywhere."""
    if algorithm == "spo":
        spread = state.replay.experience
        small = state.params, state.hyper, state.optimizer, state.dual_optimizer, state.replay.is_full
    else:
        spread = state.rollout.env_state, state.rollout.observation, state.rollout.episodes
        small = state.params
    leaves = jax.tree.leaves(spread)
    return {
        "devices": sorted({len(leaf.addressable_shards) for leaf in leaves}),
        "shards": sorted({shard.data.shape[axis] for leaf in leaves for shard in leaf.addressable_shards}),
        "distinct": min(len({str(shard.index) for shard in leaf.addressable_shards}) for leaf in leaves),
        "replicated": all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(small)),
    }


def main(algorithm, num_seeds, batch_size):
    jax.config.update("jax_num_cpu_devices", 4)
    env = sl.make_env("Maze-v0", kwargs={"num_rows": 4, "num_cols": 4})
    if algorithm == "spo":
        config = sl.spo_config(**SIZES, **SEARCH, **REPLAY, num_seeds=num_seeds, batch_size=batch_size)
    else:
        config = sl.ppo_config(**SIZES, num_seeds=num_seeds)
    learner = getattr(sl, algorithm).make(env, sl.make_network(env, config), config)
    make_state, _ = start.initial_state(learner, config, jax.devices())
    state = make_state()
    program = chunk.compile_chunk(learner, num_seeds, state)
    axis = 0 if num_seeds == 1 else 1
    before = placement(algorithm, state, axis)
    for num_updates in (2, 1):
        state, _ = program(state, num_updates)
    print(json.dumps([before, placement(algorithm, state, axis)]))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
