"""How often a search asks its networks while it runs: that is most of what a search costs."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import quick
from support.tabular import make_model, make_root, make_tree, on_device, random_tree, search_tree

from stoix_like.search import smc
from stoix_like.search.model import SearchConfig

ROOTS = [1, 2, 3]
NUM_ENVS, NUM_PARTICLES = len(ROOTS), 4
SHARED = {"num_particles": NUM_PARTICLES, "gamma": 1.0}


def chain():
    """State k is k steps from the end, state 0: the last of the particles finishes in the third step."""
    state = np.arange(4)[:, None]
    is_last = np.broadcast_to(state == 1, (4, 2))
    next_state = np.broadcast_to(np.maximum(state - 1, 0), (4, 2))
    return make_tree(np.zeros((4, 2)), True, np.zeros(4), next_state, 1.0, ~is_last, is_last)


def search_counted(tree, model, **leaves):
    """(output, {(function of the model, rows): calls}) of a search; what a branch did not run is not counted."""
    calls = collections.Counter()

    def counted(name, function):
        def counting(params, observation):
            call = (name, len(observation.action_mask))
            jax.debug.callback(functools.partial(calls.update, [call]))
            return function(params, observation)

        return function and counting

    names = ("logits", "value", "logits_and_value")
    model = model._replace(**{name: counted(name, getattr(model, name)) for name in names})
    root = make_root(tree, jnp.array(ROOTS, jnp.int32))
    run = jax.jit(lambda key: smc.search(model, tree, key, root, 0.5, SearchConfig(**leaves | SHARED)))
    output = jax.block_until_ready(run(jax.random.key(0)))
    jax.effects_barrier()
    return output, dict(calls)


CASES = {
    "never resampled": ({"search_depth": 4, "resampling": "none"}, 4, 3),
    "by period": ({"search_depth": 4, "resampling_period": 2}, 4, 3),
    "to the end, before the limit": ({"search_depth": "full", "max_depth": 5}, 3, 3),
    "to the end, at the limit": ({"search_depth": "full", "max_depth": 3}, 3, 2),
}


@pytest.mark.parametrize("name", quick(CASES, ["by period", "to the end, at the limit"]))
def test_each_depth_asks_the_critic_once_and_all_but_the_last_the_actor(name):
    leaves, num_values, num_logits = CASES[name]
    tree = on_device(chain())
    _, calls = search_counted(tree, make_model(tree), **leaves)
    rows = NUM_ENVS * NUM_PARTICLES
    at_roots = {("logits", NUM_ENVS): 1, ("value", NUM_ENVS): 1}
    assert calls == at_roots | {("logits", rows): num_logits, ("value", rows): num_values}


def test_a_shared_torso_is_asked_once():
    """With `logits_and_value` the separate logits are never asked, and the search is the same."""
    drawn = random_tree(361)
    tree = on_device(drawn)
    plain = make_model(tree)

    def refuse(*_):
        raise AssertionError("the policy was asked by itself")

    def both(params, observation):
        return plain.logits(params, observation), plain.value(params, observation)

    leaves = {"search_depth": 4, "resampling_period": 2}
    found, calls = search_counted(tree, plain._replace(logits=refuse, logits_and_value=both), **leaves)
    rows = NUM_ENVS * NUM_PARTICLES
    assert calls == {("logits_and_value", NUM_ENVS): 1, ("logits_and_value", rows): 3, ("value", rows): 1}
    expected = search_tree(drawn, ROOTS, temperature=0.5, **leaves | SHARED)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)
