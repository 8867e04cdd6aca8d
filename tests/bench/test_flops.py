"""Operations of matrix products, by hand."""

import jax
import jax.numpy as jnp
import pytest

from stoix_like.bench.timing.flops import flops_per_step, network_flops, product_flops
from stoix_like.bench.timing.updates import preset_config
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.layers import resolve

ROWS, SQUARE = jnp.ones((2, 5)), jnp.ones((5, 5))
SMALL = {"hidden_dim": 8}
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
    torso, of_first = 2 * (97 * 8 + 8 * 8), 2 * 97 * 8
    found = network_flops(resolve(preset_config("ppo/sudoku"), SMALL))
    assert (found.actor, found.critic) == (torso + 2 * 8 * 64, torso + 2 * 8)
    assert found.forward == found.actor + found.critic
    assert found.learning == 3 * found.forward - 2 * of_first  # no gradient of the observation
    sokoban = network_flops(resolve(preset_config("ppo/sokoban"), SMALL))
    torso = 4 * 2 * ((7 * 7 * 4 + 1) * 8 + 8 * 8)
    assert sokoban.forward == torso + 4 * 2 * 8 + 2 * 16
    assert sokoban.actor + sokoban.critic == sokoban.forward + torso  # a shared torso


@pytest.mark.parametrize("preset", ["ppo/sudoku", "ppo/sokoban"])
def test_an_update_of_ppo_plays_values_and_learns_in_four_epochs(preset):
    """A shared torso is computed for actions and again for values, and once for both in learning."""
    config = resolve(preset_config(preset), SMALL)
    flops, steps = network_flops(config), config.training_core.rollout_length
    expected = flops.actor + flops.critic + 4 * flops.learning + flops.critic / steps  # values after the last steps
    assert flops_per_step(config) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("preset", ["spo/sudoku", "spo/sokoban"])
def test_an_update_of_spo_searches_and_learns_from_sequences(preset):
    """A search takes policy and value at the root and after each step of a particle but the last, and there the value.
    Learning takes the target networks on all rows, and the value after the last of each sequence."""
    config = resolve(preset_config(preset), SMALL | {"num_particles": 2, "search_depth": 3})
    flops, core, section = network_flops(config), config.training_core, config.spo
    search = flops.forward * (1 + 2 * 2) + 2 * flops.critic
    rows = section.batch_size * section.sample_sequence_length
    of_batch = rows * (flops.learning + flops.actor + flops.critic) + section.batch_size * flops.critic
    expected = search + core.epochs * of_batch / steps_per_update(config)
    assert flops_per_step(config) == pytest.approx(expected, rel=1e-9)
