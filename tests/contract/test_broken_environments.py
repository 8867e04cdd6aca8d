"""Promises that an environment breaks are told in one line that names the leaf, before anything is compiled."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

import stoix_like as sl
from stoix_like.algorithms.rollout import BREACH_METRICS, refuse_breaches
from stoix_like.envs.probes import make_truncated_constant
from stoix_like.errors import ConfigError, UnsupportedEnvironmentError
from stoix_like.evaluation.episodes import refuse_breaches as refuse_results
from stoix_like.types import FIRST, LAST, MID, NetworkParams

SIZES = {"num_envs": 4, "rollout_length": 4, "num_minibatches": 2, "hidden_dim": 8, "num_updates": 4}
REPLAY = {"sample_sequence_length": 3, "replay_buffer_size": 64, "batch_size": 4}
SPO = {"num_envs": 4, "rollout_length": 4, "hidden_dim": 8, "num_updates": 8, "search_depth": 2, "num_particles": 2}
SPO |= REPLAY


def timestep(step_type, view, mask=3, reward=0.0, extras=None):
    observation = sl.Observation(view, jnp.ones(mask, bool))
    return sl.TimeStep(jnp.int8(step_type), jnp.float32(reward), jnp.float32(1.0), observation, extras or {})


def environment(after, *, view=None, mask=3, later=None, **leaves):
    """An environment of three actions whose state is `after` from the first step on, and an int32 before."""
    view = {"x": jnp.zeros(2)} if view is None else view
    later = view if later is None else later
    return sl.Environment(
        lambda _key: ({"steps": jnp.int32(0)}, timestep(FIRST, view, mask)),
        lambda _state, _action: (after, timestep(MID, later, mask, **leaves)),
        sl.ActionSpec(3),
        task_id="broken",
        deterministic=True,
    )


STEPS = {"steps": jnp.int32(1)}


def without(**fields):
    """The environment whose time steps all have these fields instead."""
    env = environment(STEPS)
    changed = lambda made: (made[0], made[1]._replace(**fields))
    return env._replace(reset=lambda key: changed(env.reset(key)), step=lambda *call: changed(env.step(*call)))


SHAPE = "broken: observation.action_mask has the shape {}, and ActionSpec(num_values=3, num_factors=None) needs (3,)"
NONE = sl.ActionSpec(0), sl.ActionSpec(3, 0)
METRIC = "broken: the episode metric 'score' is"
EMPTY = "has the shape (0, 3), and no elements"


def measured(**metrics):
    """The environment with these metrics."""
    return environment(STEPS)._replace(episode_metrics=lambda _state, _timestep: metrics)


NEXT = "broken: extras['next_obs'] requires can_truncate=True"
STATE, VIEW = "broken: state.steps is int32[] after reset", "broken: observation.agent_view"
BROKEN = {
    "a state of another type": (environment({"steps": jnp.float32(1.0)}), f"{STATE}, and float32[] after step"),
    "a state of another shape": (environment({"steps": jnp.zeros(2, jnp.int32)}), f"{STATE}, and int32[2] after step"),
    "a state with more": (
        environment(STEPS | {"more": jnp.int32(1)}),
        "broken: state.more is not there after reset, and int32[] after step",
    ),
    "another view": (
        environment(STEPS, later={"x": jnp.zeros(3)}),
        f"{VIEW}.x is float32[2] after reset, and float32[3] after step",
    ),
    "a view of nothing": (environment(STEPS, view={}), f"{VIEW} is empty"),
    "a mask of another width": (environment(STEPS, mask=4), SHAPE.format((4,))),
    "a reward for each of two": (
        environment(STEPS, reward=np.zeros(2)),
        "broken: reward has the shape (2,) after step",
    ),
    "no values": (environment(STEPS)._replace(action_spec=NONE[0]), f"broken: {NONE[0]} has no actions"),
    "no factors": (environment(STEPS)._replace(action_spec=NONE[1]), f"broken: {NONE[1]} has no actions"),
    "a mask of numbers": (
        without(observation=sl.Observation({"x": jnp.zeros(2)}, jnp.ones(3, jnp.int32))),
        "broken: observation.action_mask is int32, not bool",
    ),
    "no mask": (without(observation=sl.Observation({"x": jnp.zeros(2)}, None)), SHAPE.format(None)),
    "no extras": (without(extras=None), "broken: extras is NoneType after reset"),
    "a first reward for each of two": (without(reward=jnp.zeros(2)), "broken: reward has the shape (2,) after reset"),
    "a view with an empty array": (
        environment(STEPS, view={"x": jnp.zeros(2), "y": jnp.zeros((0, 3))}),
        f"{VIEW}.y {EMPTY}",
    ),
    "a state with an empty array": (
        sl.Environment(
            lambda _key: ({"x": jnp.zeros((0, 3))}, timestep(FIRST, {"x": jnp.zeros(2)})),
            lambda state, _action: (state, timestep(MID, {"x": jnp.zeros(2)})),
            sl.ActionSpec(3),
            task_id="broken",
        ),
        f"broken: state.x {EMPTY}",
    ),
    **{
        f"a metric named {name}": (
            measured(**{name: jnp.float32(0.0)}),
            f"broken: episode_metrics has '{name}', which is the name of a metric of every run",
        )
        for name in ("episode_return", "levels_reused")
    },
    "a metric of two numbers": (measured(score=jnp.zeros(2)), f"{METRIC} float32[2]"),
    "a metric of complex numbers": (measured(score=jnp.complex64(1j)), f"{METRIC} complex64[]"),
    "metrics without names": (
        measured()._replace(episode_metrics=lambda *_: jnp.zeros(())),
        "broken: episode_metrics does not return a dictionary of names",
    ),
    "next_obs without truncations": (environment(STEPS, extras={"next_obs": jnp.zeros(2)}), NEXT),
}
nothing = lambda *_: jnp.zeros(4)
NETWORK = sl.Network(lambda *_: NetworkParams(None, 0.0, 0.0), nothing, nothing, nothing)


def policy(_params, _state, observation, _key, _deterministic):
    return jnp.zeros(observation.action_mask.shape[0], jnp.int32)


WAYS = {
    "ppo": lambda env: sl.ppo.make(env, NETWORK, sl.ppo_config(**SIZES)),
    "spo": lambda env: sl.spo.make(env, NETWORK, sl.spo_config(**SPO)),
    "evaluate": lambda env: sl.evaluate(env, policy, None, jax.random.key(0), num_episodes=4),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_one_line(name, way):
    env, what = BROKEN[name]
    with pytest.raises(UnsupportedEnvironmentError) as caught:
        WAYS[way](env)
    assert caught.value.what == what
    assert caught.value.hint
    assert caught.value.exit_code == 3


def test_extras_may_begin_with_the_first_step_where_no_loop_carries_them_and_ppo_refuses_spo():
    later = environment(STEPS, extras={"score": jnp.float32(1.0)})
    assert WAYS["ppo"](later)
    with pytest.raises(UnsupportedEnvironmentError, match=r"timestep\.extras\.score is not there after reset"):
        WAYS["evaluate"](later)
    with pytest.raises(ConfigError, match=r"ppo\.make: a SPOConfig is of another algorithm"):
        sl.ppo.make(make_truncated_constant(), NETWORK, sl.spo_config())


@pytest.mark.parametrize("env", [make_truncated_constant(), sl.make_env("probe/constant_reward")])
def test_an_evaluation_marks_truncations_and_declared_ones_are_no_breach(env):
    results = jax.jit(lambda key: sl.evaluate(env, policy, None, key, num_episodes=8))(jax.random.key(0))
    assert (results.is_truncated == env.can_truncate).all()
    assert not results.is_unfinished.any()
    refuse_results(env, results)


def played(reward=0.0, view=0.0, legal=True, metric=0.0, discount_of_end=0.0):
    """An environment that ends every third step, and shows these at the second of each episode, and this discount at
    its end. Its last mask has no legal action, as that of BinPack."""

    def shown(step):
        is_second = step == 2
        pick = lambda value: jnp.where(is_second, value, 0.0)
        mask = jnp.full(3, jnp.where(is_second, legal, step != 4))
        return sl.Observation({"x": jnp.ones(2) * pick(view)}, mask)

    def reset(_key):
        first = shown(jnp.int32(1))
        return jnp.int32(1), sl.TimeStep(jnp.int8(FIRST), jnp.float32(0.0), jnp.float32(1.0), first, {})

    def step(state, _action):
        after, ends = state + 1, state == 3
        kind, discount = jnp.where(ends, jnp.int8(LAST), jnp.int8(MID)), jnp.where(ends, discount_of_end, 1.0)
        gained = jnp.where(state == 2, jnp.float32(reward), 0.0)
        return after, sl.TimeStep(kind, gained, discount.astype(jnp.float32), shown(after), {})

    metrics = lambda _state, _timestep: {"score": jnp.float32(metric)}
    return sl.Environment(reset, step, sl.ActionSpec(3), "played", deterministic=True, episode_metrics=metrics)


NAN, INF = float("nan"), float("inf")


#: {what is shown: (reward, view, whether an action is legal, metric, discount of the end; how it is told)}
SHOWN = {
    "nothing": (0.0, 0.0, True, 0.0, 0.0, None),
    "reward": (NAN, 0.0, True, 0.0, 0.0, r"played: 4 reward\(s\) were NaN or infinite"),
    "infinite reward": (INF, 0.0, True, 0.0, 0.0, r"played: 4 reward\(s\) were NaN or infinite"),
    "view": (0.0, -INF, True, 0.0, 0.0, r"played: 4 observation\(s\) had a value that is NaN or infinite"),
    "mask": (0.0, 0.0, False, 0.0, 0.0, r"played: 4 time\(s\) the action_mask had no legal action where the episode"),
    "metric": (0.0, 0.0, True, NAN, 0.0, "played: the episode metric 'score' is not finite"),
    "truncation": (0.0, 0.0, True, 0.0, 1.0, r"played: 4 episode\(s\) ended by LAST with a discount above 0"),
}


@functools.cache
def shown_by(algorithm):
    """What an update and an evaluation tell of an environment that shows these numbers: one program for all."""

    @jax.jit
    def run(*numbers):
        env, is_ppo = played(*numbers), algorithm == "ppo"
        config = sl.ppo_config(**SIZES) if is_ppo else sl.spo_config(**SPO)
        learner = (sl.ppo if is_ppo else sl.spo).make(env, sl.make_network(env, config), config)
        _, metrics = learner.update(learner.init(jax.random.key(0)))
        return metrics, sl.evaluate(env, policy, None, jax.random.key(0), num_episodes=4)

    return run


@pytest.mark.parametrize("algorithm", ["ppo", full("spo")])
@pytest.mark.parametrize("shown", SHOWN)
def test_what_playing_shows_is_refused_by_name_in_training_and_evaluation(algorithm, shown):
    """Four environments play four steps, or four episodes: the second step of each episode is the broken one."""
    *numbers, breach = SHOWN[shown]
    metrics, results = shown_by(algorithm)(*numbers)
    env = played()
    for call in (lambda: refuse_breaches(metrics, env.task_id), lambda: refuse_results(env, results)):
        with contextlib.nullcontext() if breach is None else pytest.raises(UnsupportedEnvironmentError, match=breach):
            call()
    if breach is None:
        assert metrics.keys() - refuse_breaches(metrics, env.task_id).keys() == BREACH_METRICS.keys()
