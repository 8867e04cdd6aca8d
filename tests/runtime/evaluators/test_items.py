"""Scores of items by slices: the same whatever their size, for one seed and for several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.errors import RunError
from stoix_like.runtime.evaluators.items import ItemEvaluator
from stoix_like.types import role_key

ITEMS = {"x": np.arange(7, dtype=np.float32)}


def score(params, items, keys):
    """The square of a distance, and noise that shows the key of an item."""
    noise = jax.vmap(jax.random.uniform)(keys)
    return {"score": -((items["x"] - params) ** 2), "noise": noise, "length": items["x"] + 1.0}


@pytest.mark.parametrize("num_at_once", [1, 3, 7, 64])
def test_slices_change_no_score_and_each_item_has_its_key(num_at_once):
    root = jax.random.key(5)
    scores = ItemEvaluator(score, ITEMS, num_at_once)(jnp.float32(2.0), root, 11)
    key = role_key(root, "evaluation", 11)
    noise = [jax.random.uniform(jax.random.fold_in(key, index)) for index in range(7)]
    np.testing.assert_array_equal(scores.results["episode_return"], [-np.square(np.arange(7.0) - 2.0)])
    np.testing.assert_array_equal(scores.results["noise"], [noise])
    np.testing.assert_array_equal(scores.results["episode_length"], [np.arange(7.0) + 1.0])
    assert scores.mean_return() == pytest.approx([-5.0])  # -(4 + 1 + 0 + 1 + 4 + 9 + 16) / 7


@pytest.mark.parametrize("seeds", ["vmap", "map"])
def test_seeds_are_scored_each_with_its_own_parameters_and_key(seeds):
    params, roots = jnp.float32([0.0, 2.0]), jax.random.split(jax.random.key(0))
    together = ItemEvaluator(score, ITEMS, 3, 2, seeds=seeds)(params, roots, 4).results
    for seed in range(2):
        alone = ItemEvaluator(score, ITEMS, 3)(params[seed], roots[seed], 4).results
        for name, values in alone.items():
            np.testing.assert_array_equal(together[name][seed], values[0], name)


def test_pieces_are_slices_and_stop_when_all_processes_have_ended():
    playing = ItemEvaluator(score, ITEMS, 4).play(jnp.float32(0.0), jax.random.key(0), 0)
    first = next(playing)
    assert (first.finished, first.episodes, first.wanted, first.is_round_over) == (0, 7, 1, False)
    assert playing.send(1).finished == 4
    over = playing.send(1)
    assert (over.finished, over.wanted, over.is_round_over) == (7, 0, True)
    assert playing.send(1).finished == 7  # another process has not ended
    with pytest.raises(StopIteration) as ended:
        playing.send(0)
    assert ended.value.value.results["episode_return"].shape == (1, 7)


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (lambda params, items, keys: {"loss": items["x"]}, "no `score`"),
        (lambda params, items, keys: {"score": items["x"] / 0.0}, "a `score` that is not finite"),
    ],
)
def test_an_item_without_a_finite_score_is_an_error(broken, what):
    with pytest.raises(RunError, match=what):
        ItemEvaluator(broken, ITEMS, 7)(jnp.float32(0.0), jax.random.key(0), 0)
