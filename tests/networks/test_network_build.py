"""What holds for every network: forms, masks, types, sharing, and errors that say what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import quick

from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.errors import ConfigError
from stoix_like.networks import build
from stoix_like.types import ActionSpec

FILL = np.finfo(np.float32).min
ADAPTERS = ["dense", "grid", "binpack"]
UNSET = "leave observation_adapter null"


def make(observation, adapter, **leaves):
    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), observation)
    return build.make(example, ActionSpec(4), ArchitectureConfig(**leaves), adapter=adapter)


@pytest.mark.parametrize("adapter", quick(ADAPTERS, ["grid"]))
@pytest.mark.parametrize("leaves", [{}, {"shared_torso": True}, {"compute_dtype": "bfloat16"}], ids=str)
def test_forms_masks_and_agreement(adapter, leaves, prepared):
    network, params, forward, observation = prepared(adapter, **leaves)
    logits, value = forward(params, observation)
    assert (logits.shape, value.shape) == (observation.action_mask.shape, (6,))
    assert (logits.dtype, value.dtype) == (jnp.float32, jnp.float32)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    assert bool(jnp.all(jnp.isfinite(value)))
    np.testing.assert_array_equal(np.asarray(logits) == FILL, ~np.asarray(observation.action_mask))
    assert float(jnp.abs(jnp.where(observation.action_mask, logits, 0.0)).max()) < 1.0  # nearly uniform at first
    apart = jax.jit(lambda p, o: (network.actor(p, o), network.critic(p, o)))(params, observation)
    # Compiled apart, the same sums may be fused differently; bfloat16 rounds at 2^-8.
    tolerance = 2e-2 if leaves.get("compute_dtype") else 1e-5
    for a, b in zip(apart, (logits, value), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("adapter", quick(ADAPTERS, ["binpack"]))
def test_bfloat16_is_used_and_close_to_float32_and_one_trace_serves_all_calls(adapter, prepared):
    _, params, exact, observation = prepared(adapter)
    _, _, rounded, _ = prepared(adapter, compute_dtype="bfloat16")
    value, near = exact(params, observation)[1], rounded(params, observation)[1]
    assert jnp.any(value != near)
    # bfloat16 keeps 8 bits; some ten roundings in a row on values of order one. Maze sources are scaled by 15.
    np.testing.assert_allclose(near, value, rtol=0.05, atol=0.15)
    exact(params, observation)
    assert exact._cache_size() == 1


@pytest.mark.parametrize("adapter", quick(ADAPTERS, ["grid"]))
@pytest.mark.parametrize("shared", [False, True], ids=["separate", "shared"])
def test_shared_torso_is_shared_and_separate_ones_are_not(adapter, shared, prepared):
    """The value's gradient reaches the torso that the policy uses only if it is shared; no illegal logit has one."""
    network, params, _, observation = prepared(adapter, **({"shared_torso": True} if shared else {}))

    def losses(params):
        logits, value = network.actor_critic(params, observation)
        return value.sum(), jnp.where(observation.action_mask, 0.0, logits / 1e30).sum()

    by_value, by_illegal = jax.jit(jax.jacrev(losses))(params)
    reaches = lambda tree: any(bool(jnp.any(leaf != 0.0)) for leaf in jax.tree.leaves(tree))
    assert (params.torso is not None) is shared
    assert reaches(by_value.torso) is shared
    assert not reaches(by_value.actor)
    assert reaches(by_value.critic)
    assert not jnp.all(observation.action_mask)
    assert not reaches(by_illegal)


def test_initialisation_depends_on_the_key_alone(maze):
    init = jax.jit(make(maze, "dense", hidden_dim=16).init)
    first, again, other = (init(jax.random.key(seed), maze) for seed in (0, 0, 1))
    assert all(jnp.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (first, again)), strict=True))
    assert any(not jnp.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (first, other)), strict=True))


@pytest.mark.parametrize(
    ("task", "adapter", "leaves", "what", "hint"),
    [
        ("maze", "binpack", {}, "binpack needs ems, ems_mask, items, items_mask, items_placed in the obs", UNSET),
        ("binpack", "grid", {}, "grid needs walls, agent_position, target_position, step_count in the obs", UNSET),
        ("maze", "conv", {}, "unknown 'conv'", ""),
        ("maze", "dense", {"num_heads": 2}, "only the binpack network has attention heads, and this one is dense", ""),
        ("maze", "grid", {"num_heads": 2}, "only the binpack network has attention heads, and this one is grid", ""),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(task, adapter, leaves, what, hint, request):
    with pytest.raises(ConfigError, match=what) as caught:
        make(request.getfixturevalue(task), adapter, **leaves)
    assert (caught.value.hint or "").startswith(hint)


def test_binpack_refuses_other_masks_lengths_in_millimetres_and_heads_that_do_not_divide(binpack):
    example = jax.tree.map(lambda x: x[0], binpack)
    with pytest.raises(ConfigError, match=r"scores 800 pairs, but the action mask has shape \(20, 40\)"):
        build.make(example, ActionSpec(40, 20), ArchitectureConfig(), adapter="binpack")
    ems = jax.tree.map(lambda x: x.astype(jnp.int32), example.agent_view["ems"])
    whole = example._replace(agent_view={**example.agent_view, "ems": ems})
    with pytest.raises(ConfigError, match="shares of the container") as caught:
        build.make(whole, ActionSpec(800), ArchitectureConfig(), adapter="binpack")
    assert "normalize_dimensions" in caught.value.hint
    config = ArchitectureConfig(hidden_dim=32, num_heads=5)
    with pytest.raises(ConfigError, match="hidden_dim = 32 is not divisible by 5") as caught:
        build.make(example, ActionSpec(800), config, adapter="binpack")
    assert caught.value.hint == "use 4 heads, or a hidden_dim that is a multiple of 5"
