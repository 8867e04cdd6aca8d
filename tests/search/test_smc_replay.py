"""Searches of a stochastic environment, followed particle by particle in NumPy; and the faults this must see."""

import jax
import numpy as np
import pytest
from support.marks import quick
from support.recorded import make_tables, replay, search_recorded

from stoix_like.ops import trees
from stoix_like.search import particles

TABLES = make_tables()
SHORT_LIVED = make_tables(end_probability=0.6)
ROOTS = np.array([0, 1, 2, 3, 4, 0])
TEMPERATURE = np.array([0.3, 0.5, 1.0, 0.2, 0.4, 2.0])  # of each environment
SCALARS = {"gamma": 0.9, "gae_lambda": 0.8}

BY_PERIOD, BY_SIZE = ({"search_depth": depth, "resampling": word} for depth, word in ((6, "period"), (5, "ess")))
NOISE = {"root_noise_correction": True, "dirichlet_fraction": 0.4}
TO_THE_END = {"search_depth": "full", "max_depth": 40, "root": "gumbel_topk", "continuation": "greedy"}
CASES = {
    "systematic by period": BY_PERIOD | {"resampling_period": 2, "record_paths": True},
    "multinomial by sample size": BY_SIZE | {"resampling_ess_threshold": 0.6, "resampler": "multinomial"},
    "systematic by sample size": BY_SIZE | NOISE | {"resampling_ess_threshold": 0.7},
    "never": {"search_depth": 4, "resampling": "none"},
    "distinct roots, greedy, to the end": BY_PERIOD | TO_THE_END | {"resampling_period": 3, "record_paths": True},
}


def followed(tables=TABLES, num_particles=24, **leaves):
    leaves = SCALARS | {"num_particles": num_particles} | leaves
    output, steps = search_recorded(tables, ROOTS, temperature=TEMPERATURE, **leaves)
    return output, steps, replay(output, steps, tables, temperature=TEMPERATURE, **leaves)


@pytest.mark.parametrize("name", quick(CASES, set(CASES) - {"never", "systematic by sample size"}))
def test_every_particle_is_where_it_must_be(name):
    leaves = CASES[name]
    is_full = leaves["search_depth"] == "full"
    output, steps, counts = followed(SHORT_LIVED if is_full else TABLES, **leaves)
    assert counts.num_illegal == 0
    assert counts.num_finished > 0
    assert (counts.num_resampled > 0) == (name != "never")
    assert counts.num_not_resampled > 0
    if is_full:
        assert len(steps) < leaves["max_depth"]  # it left when all were finished
        np.testing.assert_array_equal(output.diagnostics.effective_sample_size[len(steps) :], 0.0)


def test_copies_of_a_particle_part_ways_and_only_by_new_keys():
    """Each gets randomness of its own at every depth; without it they would share their future."""
    endless = make_tables(end_probability=0.0)
    _, steps, _ = followed(endless, **CASES["systematic by period"])
    for depth, step in enumerate(steps):
        has_copies = depth % 2 == 0  # all in the same state at first, then just resampled
        assert all((len(np.unique(row)) < 24) == has_copies for row in step.before.ident)
        assert all(len(np.unique(row)) == 24 for row in step.after.ident)
    # without new keys all share the future that will come true
    leaves = SCALARS | {"search_depth": 3, "resampling": "none", "num_particles": 24}
    _, steps = search_recorded(endless, ROOTS, rekeyed=False, **leaves)
    for step in steps:
        assert all(len(np.unique(row)) == 1 for row in step.after.ident)


#: Fields that a planted gather treats wrongly: `advantage` is gathered, the others are not. The three that are left,
#: score, log prior and `resampled`, are the same for all particles after a resampling.
FAULTS = ("none", "env_state", "logits", "value", "root_action", "scale", "alive", "advantage")


@pytest.fixture(scope="module")
def planted():
    """A gather with the fault that the state asks for, so that all share a compilation; JAX keeps what it traced."""
    gather = particles.gather_particles

    def faulty(particles, ancestors):
        gathered = gather(particles, ancestors)
        number = particles.env_state.fault[0, 0]
        wrong = particles._replace(advantage=jax.vmap(lambda x, indices: x[indices])(particles.advantage, ancestors))
        changed = {
            name: trees.where(number == FAULTS.index(name), getattr(wrong, name), getattr(gathered, name))
            for name in FAULTS[1:]
        }
        return gathered._replace(**changed)

    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(particles, "gather_particles", faulty)
        yield
    jax.clear_caches()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_field_that_is_gathered_wrongly_is_seen(planted, fault):
    leaves = SCALARS | CASES["systematic by period"] | {"num_particles": 24}
    asked = {"temperature": TEMPERATURE, "fault": FAULTS.index(fault)}
    output, steps = search_recorded(TABLES, ROOTS, **asked, **leaves)
    if fault == "none":
        assert replay(output, steps, TABLES, temperature=TEMPERATURE, **leaves).num_illegal == 0
    elif fault == "logits":
        assert replay(output, steps, TABLES, temperature=TEMPERATURE, **leaves).num_illegal > 0
    else:
        with pytest.raises(AssertionError):
            replay(output, steps, TABLES, temperature=TEMPERATURE, **leaves)
