"""Pass@k against all subsets."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.ops.pass_at_k import pass_at_k


@pytest.mark.parametrize("num_samples", [1, 2, 5, 8])
def test_is_the_share_of_subsets_with_a_success(num_samples):
    for k in range(1, num_samples + 1):
        subsets = list(itertools.combinations(range(num_samples), k))
        wanted = [np.mean([min(subset) < c for subset in subsets]) for c in range(num_samples + 1)]
        found = pass_at_k(jnp.arange(num_samples + 1), num_samples, k)
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_of_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="k must be from 1 to the 4 samples"):
        pass_at_k(jnp.array([1]), 4, 5)
