"""A program of its own, on two devices: random games of a board game on one of them, and spread over both.

Word: the game. Prints how many of the games were over, and the leaves of the last states that differ.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import stoix_like as sl
from stoix_like.search.mcts import random_actions

NUM_GAMES, NUM_PLIES = 64, 120


def play(game, states):
    """The states after random decisions."""

    def ply(states, number):
        seeds = (number * NUM_GAMES + jnp.arange(NUM_GAMES, dtype=jnp.uint32)) * jnp.uint32(0x9E3779B9)
        return jax.vmap(game.step)(states, random_actions(game, seeds, states)), None

    return jax.lax.scan(ply, states, jnp.arange(NUM_PLIES, dtype=jnp.uint32))[0]


def main(name):
    jax.config.update("jax_num_cpu_devices", 2)
    game, found = sl.make_game(name), []
    first = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (NUM_GAMES, *jnp.shape(leaf))), game.init())
    for devices in (jax.devices()[:1], jax.devices()):
        mesh = jax.make_mesh((len(devices),), ("games",), axis_types=(AxisType.Auto,), devices=devices)
        split = NamedSharding(mesh, PartitionSpec("games"))
        last = jax.jit(lambda states: play(game, states), in_shardings=split, out_shardings=split)(first)
        assert {len(leaf.addressable_shards) for leaf in jax.tree.leaves(last)} == {len(devices)}
        found.append(jax.device_get(last))
    differ = jax.tree.map(lambda a, b: int((a != b).sum()), *found)
    num_over = int(np.asarray(jax.vmap(game.is_over)(found[0])).sum())
    print(json.dumps({"over": num_over, "differ": sum(jax.tree.leaves(differ))}))


if __name__ == "__main__":
    main(sys.argv[1])
