"""Operations of matrix products, by hand."""

import jax
import jax.numpy as jnp
import pytest

from stoix_like.bench.speed.spo import flops_per_step
from stoix_like.bench.timing.flops import network_flops, ppo_flops_per_step, product_flops
from stoix_like.bench.timing.updates import preset_config
from stoix_like.config.layers import resolve

ROWS, SQUARE = jnp.ones((2, 5)), jnp.ones((5, 5))
ONE = 2 * 2 * 5 * 5  # a product of ROWS and SQUARE: each of 10 numbers sums 5 products


@pytest.mark.parametrize(
    ("function", "products"),
    [
        (lambda x, w: x @ w + x, 1),
        (lambda x, w: jax.jit(lambda x: x @ w)(x) @ w, 2),
        (lambda x, w: jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=3)[0], 3),
        (lambda x, w: jax.lax.cond(x.sum() > 0, lambda: x, lambda: x @ w @ w), 2),
        (lambda x, w: jax.lax.while_loop(lambda x: x.sum() < 1e3, lambda x: x @ w, x), 1),
        (jax.value_and_grad(lambda x, w: (x @ w).sum()), 2),
        (lambda x, w: x * 2 + w.sum(), 0),
    ],
)
def test_products_are_counted_in_loops_branches_and_gradients(function, products):
    assert product_flops(function, ROWS, SQUARE) == products * ONE


def test_a_batch_of_products_and_a_product_over_two_axes():
    assert product_flops(lambda x: jnp.einsum("bij,bjk->bik", x, x), jnp.ones((3, 4, 4))) == 3 * 2 * 4**3
    assert product_flops(lambda x: jnp.tensordot(x, x, 2), jnp.ones((3, 7))) == 2 * 3 * 7


def test_networks_of_sudoku_and_sokoban():
    """Sudoku: 97 numbers, two layers of 8, 64 logits or a value, apart. Sokoban: 197 numbers of each direction."""
    sudoku = resolve(preset_config("ppo/sudoku"), {"hidden_dim": 8})
    torso, of_first = 2 * (97 * 8 + 8 * 8), 2 * 97 * 8
    found = network_flops(sudoku)
    assert (found.actor, found.critic) == (torso + 2 * 8 * 64, torso + 2 * 8)
    assert found.forward == found.actor + found.critic
    assert found.learning == 3 * found.forward - 2 * of_first  # no gradient of the observation
    assert ppo_flops_per_step(sudoku) == found.forward + 4 * found.learning
    sokoban = network_flops(resolve(preset_config("ppo/sokoban"), {"hidden_dim": 8}))
    torso = 4 * 2 * ((7 * 7 * 4 + 1) * 8 + 8 * 8)
    assert sokoban.forward == torso + 4 * 2 * 8 + 2 * 16
    assert sokoban.actor + sokoban.critic == sokoban.forward + torso  # which both have, and an update computes once


def test_spo_searches_and_learns():
    config = resolve(preset_config("spo/sokoban"), {"hidden_dim": 8, "num_particles": 2, "search_depth": 3})
    flops = network_flops(config)
    search = flops.forward * (1 + 2 * 2) + 2 * flops.critic
    rows = 16 * 19
    update = 16 * (rows * (flops.learning + flops.forward) + 16 * flops.critic)
    assert flops_per_step(config) == pytest.approx(search + update / (64 * 20))
