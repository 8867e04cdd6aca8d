"""What a learner with inputs and items promises beside the battery, and that planted breaches of it are seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import offline
from support.asserts import key_data

from stoix_like.config.layers import resolve
from stoix_like.ops import trees
from stoix_like.runtime.evaluators.items import ItemEvaluator


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(learner, inputs by path)."""
    path = offline.write_pairs(tmp_path_factory.mktemp("data") / "pairs.npz")
    config = resolve(offline.OfflineConfig(), {"data_file": str(path)})
    return offline.make(config).learner, offline.ROW.inputs(config)


def begin(learner, given):
    return trees.with_paths(jax.jit(learner.init)(jax.random.key(0)), jax.tree.map(jnp.asarray, given))


def inputs_are_read_and_kept(learner, given):
    """An update leaves inputs as they are, and learns something else from others."""
    state = begin(learner, given)
    update = jax.jit(learner.update)
    after, _ = update(state)
    for path in given:
        jax.tree.map(np.testing.assert_array_equal, *(trees.at_path(s, path) for s in (state, after)))
    other, _ = update(begin(learner, jax.tree.map(lambda x: x + 1, given)))
    same = jax.tree.map(lambda a, b: bool((a == b).all()), key_data(after.params), key_data(other.params))
    assert not all(jax.tree.leaves(same))


def slices_change_no_score(learner, given):
    params, root = begin(learner, given).params, jax.random.key(5)
    scored = [ItemEvaluator(learner.score, learner.items, size)(params, root, 1).results for size in (1, 5, 32)]
    for some in scored[1:]:
        for name, values in scored[0].items():
            np.testing.assert_allclose(some[name], values, rtol=1e-6, atol=1e-6)  # sums of three in another order


def counters_are_exact_over_updates(learner, given):
    state, told = begin(learner, given), []
    for _ in range(3):
        state, metrics = jax.jit(learner.update)(state)
        told.append(float(metrics["trainer/samples_trained_max"]))
    assert told == [offline.BATCH * n for n in (1, 2, 3)]
    assert jnp.issubdtype(state.samples_trained.dtype, jnp.integer)


PROMISES = (inputs_are_read_and_kept, slices_change_no_score, counters_are_exact_over_updates)


@pytest.mark.parametrize("promise", PROMISES)
def test_kept(made, promise):
    promise(*made)


def _closed_over(learner, given):
    """Data as a constant of the program."""
    update = lambda state: learner.update(state._replace(data=jax.tree.map(jnp.asarray, given["data"])))
    return learner._replace(update=lambda state: (update(state)[0]._replace(data=state.data), update(state)[1]))


def _written_to(learner, _):
    def update(state):
        after, metrics = learner.update(state)
        return after._replace(data=jax.tree.map(lambda x: x * 2, after.data)), metrics

    return learner._replace(update=update)


def _of_the_slice(learner, _):
    """A score that is relative to those of the same slice."""
    score = lambda *of: {"score": (s := learner.score(*of)["score"]) - s.mean()}
    return learner._replace(score=score)


def _of_the_place(learner, _):
    """Noise from the item's place in its slice, not from its key."""
    noise = lambda items: jax.random.normal(jax.random.key(0), (len(items["y"]),))
    return learner._replace(score=lambda params, items, keys: {"score": noise(items)})


def _begun_anew(learner, _):
    """A counter that forgets."""
    update = lambda state: learner.update(state._replace(samples_trained=jnp.int32(0)))
    return learner._replace(update=update)


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        (_closed_over, inputs_are_read_and_kept),
        (_written_to, inputs_are_read_and_kept),
        (_of_the_slice, slices_change_no_score),
        (_of_the_place, slices_change_no_score),
        (_begun_anew, counters_are_exact_over_updates),
    ],
)
def test_a_planted_breach_is_seen(made, fault, promise):
    learner, given = made
    with pytest.raises(AssertionError):
        promise(fault(learner, given), given)


def test_an_items_key_is_its_own(made):
    learner, _ = made
    drawing = lambda params, items, keys: {"score": jax.vmap(jax.random.uniform)(keys)}
    some = [
        ItemEvaluator(drawing, learner.items, size)(None, jax.random.key(2), 4).results["episode_return"][0]
        for size in (3, 32)
    ]
    np.testing.assert_array_equal(*some)
    assert len(set(some[0].tolist())) == 32
