"""A program of its own: prints how many samples of a tiny agent four devices and one have alike.

Words: the folder of the tests, the context.
"""

import json
import sys

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.speaking import model_speaker

NUM_GROUPS = 252  # of 4 members: 1,008 samples of an episode


def samples(agent, params, lexicon, keys, **placed):
    """([N, T, S + G] tokens, -1 where none, [N] actions, the number of devices) of episodes of keys [M]."""

    def play(keys):
        rules = agent.rules
        speaker = model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, rules.slots, agent.temperature)
        episodes, world = rollout(agent.dialogue, lexicon, rules, speaker, keys, keys)
        return episodes.tokens, episodes.is_valid, world.num_actions

    tokens, is_valid, actions = jax.jit(play, **placed)(keys)
    return np.where(is_valid, tokens, -1), np.asarray(actions), len(tokens.sharding.device_set)


def main(tests, context):
    jax.config.update("jax_num_cpu_devices", 4)
    sys.path.insert(0, tests)
    from support.agents import tiny_agent

    keys = jax.random.split(jax.random.key(3), NUM_GROUPS)
    mesh = jax.make_mesh((4,), ("devices",), axis_types=(AxisType.Auto,))
    divided = NamedSharding(mesh, PartitionSpec("devices"))
    one = samples(*tiny_agent(context=context), keys)
    of_four = tiny_agent(context=context, num_devices=4, num_envs=16)
    four = samples(*of_four, jax.device_put(keys, divided), out_shardings=divided)
    same = (one[0] == four[0]).all(axis=(1, 2)) & (one[1] == four[1])
    print(json.dumps({"devices": [one[2], four[2]], "samples": len(same), "same": int(same.sum())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
