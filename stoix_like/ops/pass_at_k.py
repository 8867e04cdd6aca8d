"""How often the best of k samples succeeds, from n samples of which c succeeded."""

from __future__ import annotations

import jax.numpy as jnp

from stoix_like.types import Array


def pass_at_k(num_successes: Array, num_samples: int, k: int) -> Array:
    """[...] float32, 1 - C(n - c, k) / C(n, k): unbiased (Chen et al. 2021, arXiv 2107.03374, equation 1).

    From whole numbers of successes c [...] of n samples, for k from 1 to n. It is computed as the product of
    1 - k / i over i from n - c + 1 to n.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"k must be from 1 to the {num_samples} samples, got {k}")
    rank = num_successes.ndim
    number = jnp.arange(1, num_samples + 1, dtype=jnp.float32).reshape((1,) * rank + (-1,))
    counts = number > (num_samples - num_successes)[..., None]
    factors = jnp.where(counts, 1.0 - k / number, 1.0)
    return 1.0 - jnp.prod(jnp.maximum(factors, 0.0), axis=-1)
