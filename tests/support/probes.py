"""The probes side by side, chosen by a number so that one compilation serves all, and their values at gamma = 0.9."""

import jax
import jax.numpy as jnp

from stoix_like.envs.probes import PROBES
from stoix_like.types import ActionSpec, Observation

KNOWN = {  # {probe: {what is shown: value}}
    "constant_reward": {0.0: 1.0},
    "observation_reward": {-1.0: -1.0, 1.0: 1.0},
    "delayed_reward": {0.0: 0.9, 1.0: 1.0},
    "action_reward": {0.0: 1.0},
    "action_observation_reward": {-1.0: 1.0, 1.0: 1.0},
    "two_choices": {0.0: 0.9, 1.0: 1.0},
}
#: Two steps and a choice in each: what is learned of it needs all that the others need. In the fast tests it is alone.
HARDEST = "two_choices"
BEST = {"action_reward": {0.0: 1}, "action_observation_reward": {-1.0: 0, 1.0: 1}, "two_choices": {0.0: 1, 1.0: 1}}


def observations(probe):
    """All that a probe shows, in the order of `KNOWN`; both actions are legal."""
    shown = jnp.array(list(KNOWN[probe]), jnp.float32)
    return Observation({"features": shown[:, None]}, jnp.ones((len(shown), 2), bool))


def make_two_choices():
    """Two actions, two steps: x = 0, then 1 or -1 as the first action was 1 or 0; the end pays 1 if both were 1, else
    -1. Here a choice is still open after the first step, so that resampling there decides something."""
    first = PROBES["delayed_reward"]()

    def seen(timestep, x):
        return timestep._replace(observation=Observation({"features": jnp.atleast_1d(x)}, jnp.ones(2, bool)))

    def reset(key):
        state, timestep = first.reset(key)
        return state, seen(timestep, 0.0)

    def step(state, action):
        wish = 2.0 * action - 1.0
        stepped, timestep = first.step(state, action)
        is_end = timestep.last()
        reward = jnp.where(is_end, jnp.minimum(state.sign, wish), 0.0)
        stepped = stepped._replace(sign=jnp.where(is_end, state.sign, wish))
        return stepped, seen(timestep, stepped.sign)._replace(reward=reward)

    return first._replace(reset=reset, step=step, action_spec=ActionSpec(2))


def one_of_the_probes(which, names=tuple(KNOWN)):
    """The probe of the index `which` in `names`, which may be traced."""
    made = [(PROBES | {"two_choices": make_two_choices})[name]() for name in names]
    num_values = max(env.action_spec.num_values for env in made)

    def chosen(outcomes):
        def widened(env, timestep):
            mask = jnp.pad(timestep.observation.action_mask, (0, num_values - env.action_spec.num_values))
            return timestep._replace(observation=timestep.observation._replace(action_mask=mask))

        wide = [(state, widened(env, timestep)) for env, (state, timestep) in zip(made, outcomes, strict=True)]
        return jax.tree.map(lambda *x: jnp.stack(x)[which], *wide)

    def reset(key):
        return chosen([env.reset(key) for env in made])

    def step(state, action):
        return chosen([env.step(state, jnp.minimum(action, env.action_spec.num_values - 1)) for env in made])

    first = made[0]
    return first._replace(reset=reset, step=step, action_spec=ActionSpec(num_values), time_limit=2)
