"""Pretraining: the gradient steps of an update read all of its rows, each once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.agents import TINY

import stoix_like as sl
from stoix_like.algorithms.text import pretraining
from stoix_like.errors import ConfigError
from stoix_like.runtime.runs import agents
from stoix_like.runtime.runs.build import build, make_env

LEAVES = {name: value for name, value in TINY.items() if name not in ("group_size", "num_minibatches")}
LEAVES |= {"all_modes": False, "all_renderings": False, "num_minibatches": 1, "actor_lr": 0.01}


@functools.cache
def updated(num_steps, num_updates=2):
    """(the state after some updates, the metrics of the last)."""
    config = sl.pretrain_config(**LEAVES, gradient_steps=num_steps)
    learner = build("pretrain", config).learner
    state = jax.jit(learner.init)(jax.random.key(0))
    update = jax.jit(learner.update)
    for _ in range(num_updates):
        state, metrics = update(state)
    return state, jax.device_get(metrics)


def counts_of_adam(state):
    """The integers of the optimizer's state, which count its steps."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state.optimizer)]
    return {int(leaf) for leaf in leaves if leaf.dtype.kind == "i" and leaf.shape == ()}


@pytest.mark.parametrize("num_steps", [1, 3])
def test_an_update_has_so_many_gradient_steps(num_steps):
    state, _ = updated(num_steps)
    assert counts_of_adam(state) == {2 * num_steps}


def test_whatever_their_number_they_read_the_same_tokens():
    (_, of_one), (_, of_three) = updated(1), updated(3)
    assert of_one["trainer/trained_tokens_max"] == of_three["trainer/trained_tokens_max"] > 0
    assert of_three["trainer/loss"] < of_one["trainer/loss"]  # it has learned in three times as many steps


def test_rows_that_cannot_be_dealt_out_equally_are_refused():
    with pytest.raises(ConfigError, match=r"not divisible by num_minibatches \* gradient_steps = 5"):
        sl.pretrain_config(**LEAVES, gradient_steps=5)


@pytest.mark.parametrize(
    ("leaves", "seen"),
    [
        ({}, ["coordinates"]),
        ({"second_rendering": "positions"}, ["coordinates", "positions"]),
        ({"second_rendering": "coordinates"}, ["coordinates"]),
        ({"all_renderings": True}, ["coordinates", "grid", "both"]),
        ({"all_renderings": True, "second_rendering": "positions"}, ["coordinates", "grid", "both", "positions"]),
        ({"rendering": "positions", "all_renderings": True}, ["positions", "grid", "coordinates", "both"]),
    ],
)
def test_a_base_sees_its_own_rendering_first_and_those_that_are_asked_for(leaves, seen):
    config = sl.pretrain_config(**LEAVES | {"rendering": "coordinates"} | leaves)
    world, tokenizer = agents.make_text_world(make_env(config.environment), config.agent), agents.make_tokenizer()
    found = pretraining.make_agents(world, tokenizer, config)
    names = {id(pieces): name for name, pieces in world.pieces.items()}
    assert [names[id(agent.dialogue.pieces)] for agent in found] == seen


def test_the_second_rendering_is_of_its_own_mode():
    config = sl.pretrain_config(**LEAVES | {"rendering": "positions", "second_rendering": "grid", "all_modes": True})
    world, tokenizer = agents.make_text_world(make_env(config.environment), config.agent), agents.make_tokenizer()
    names = {id(pieces): name for name, pieces in world.pieces.items()}
    found = [
        (one.dialogue.mode, names[id(one.dialogue.pieces)]) for one in pretraining.make_agents(world, tokenizer, config)
    ]
    assert found == [("base", "positions"), ("worldmodel", "positions"), ("base", "grid")]


def test_a_rendering_that_the_world_has_not_is_refused():
    leaves = LEAVES | {"task_id": "Sokoban-text-v0", "kwargs": {}, "second_rendering": "positions"}
    with pytest.raises(ConfigError, match="positions"):
        build("pretrain", sl.pretrain_config(**leaves))


@pytest.mark.parametrize("marks", [[7], [7, 5, 6]])
def test_short_rows_beside_long_ones_teach_what_they_teach_alone(marks):
    """Made equally long and read by one program, or by two if prompts differ in length, they give the same gradient."""
    leaves = LEAVES | {"rendering": "both", "second_rendering": "grid", "num_layers": 1}
    config = sl.pretrain_config(**leaves)
    world, tokenizer = agents.make_text_world(make_env(config.environment), config.agent), agents.make_tokenizer()
    both, grid = pretraining.make_agents(world, tokenizer, config)
    prompt = np.append(grid.lexicon.prompt[:-1], marks).astype(np.int32)
    slots = grid.rules.slots._replace(prompt=len(prompt))
    grid = grid._replace(lexicon=grid.lexicon._replace(prompt=prompt), rules=grid.rules._replace(slots=slots))
    assert both.rules.slots.per_row > grid.rules.slots.per_row
    beside, alone = (pretraining.Setup(some, 1, 1, decays_rates=True) for some in ((both, grid), (grid,)))
    hyper = pretraining.make_hyper(config)

    def updated(setup):
        state = pretraining.init(setup, hyper, 6, jax.random.key(0))._replace(step=jnp.int32(1))  # the second's turn
        return pretraining.update(setup, state)

    (found, metrics), (wanted, of_wanted) = (jax.jit(functools.partial(updated, setup))() for setup in (beside, alone))
    assert metrics["trainer/trained_tokens_max"] == of_wanted["trainer/trained_tokens_max"] > 0
    np.testing.assert_allclose(metrics["trainer/loss"], of_wanted["trainer/loss"], rtol=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), found.params, wanted.params)
