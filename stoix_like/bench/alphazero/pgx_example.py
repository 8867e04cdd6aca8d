"""The self-play of pgx's AlphaZero example, restated to be measured beside ours, and pgx's games under random actions.

The example is `examples/alphazero/train.py` of sotetsuk/pgx (commit 1001ab32) with `network.py` (462df980): a ResNet v2
of 6 blocks and 128 channels on the planes of pgx's game, mctx's Gumbel search with 32 simulations and the default
transformation of values, games restarted by pgx's `auto_reset`. Restated here are its shapes and what is computed, for
one device, with the batch normalisation at its running means as in self-play. The network is plain JAX, because the
example's library, haiku, is no dependency; parameters are random, which changes no shape.

The one place outside their doors that imports pgx and mctx, both of the extra `dev`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.types import Array, Key, Observation

NUM_BLOCKS, NUM_CHANNELS, NUM_SIMULATIONS = 6, 128, 32
BATCH_NORM_EPSILON = 1e-5  # haiku's default
#: pgx's names of the games.
IDS = {
    "tic_tac_toe": "tic_tac_toe",
    "connect_four": "connect_four",
    "othello": "othello",
    "hex_11x11": "hex",
    "go_9x9": "go_9x9",
}


class ResNet(NamedTuple):
    """The example's network: init(key, board shape, planes, actions) and the evaluation of planes [B, H, W, C]."""

    init: Callable[[Key, tuple[int, int], int, int], Any]
    apply: Callable[[Any, Array], tuple[Array, Array]]  # -> logits [B, A], values [B]


def installed() -> tuple[ModuleType, ModuleType] | None:
    """(pgx, mctx), or None if one of them is not installed."""
    try:
        import mctx
        import pgx
    except ImportError:
        return None
    return pgx, mctx


def make_resnet(num_blocks: int = NUM_BLOCKS, num_channels: int = NUM_CHANNELS) -> ResNet:
    """The network of the example."""

    def init(key: Key, shape: tuple[int, int], num_planes: int, num_actions: int) -> Any:
        keys = iter(jax.random.split(key, 2 * num_blocks + 8))
        cells, width = shape[0] * shape[1], num_channels
        block = [
            {
                "norms": [_norm(width), _norm(width)],
                "convolutions": [_weights(next(keys), 3, 3, width, width) for _ in range(2)],
            }
            for _ in range(num_blocks)
        ]
        return {
            "stem": _weights(next(keys), 3, 3, num_planes, width),
            "blocks": block,
            "norm": _norm(width),
            "policy": (_weights(next(keys), 1, 1, width, 2), _norm(2), _weights(next(keys), cells * 2, num_actions)),
            "value": (_weights(next(keys), 1, 1, width, 1), _norm(1), _weights(next(keys), cells, width)),
            "outcome": _weights(next(keys), width, 1),
        }

    def apply(params: Any, planes: Array) -> tuple[Array, Array]:
        x = _convolution(params["stem"], planes.astype(jnp.float32))
        for block in params["blocks"]:
            inner = _convolution(block["convolutions"][0], _normalised(block["norms"][0], x))
            x += _convolution(block["convolutions"][1], _normalised(block["norms"][1], inner))
        x = _normalised(params["norm"], x)
        logits, value = (_head(params[name], x) for name in ("policy", "value"))
        return logits, jnp.tanh(_linear(params["outcome"], jax.nn.relu(value)))[:, 0]

    return ResNet(init, apply)


def _weights(key: Key, *shape: int) -> tuple[Array, Array]:
    """(weights of that shape, biases), so that outputs are about as large as inputs."""
    fan_in = 1
    for size in shape[:-1]:
        fan_in *= size
    return jax.random.normal(key, shape) / fan_in**0.5, jnp.zeros(shape[-1])


def _norm(width: int) -> dict[str, Array]:
    zeros, ones = jnp.zeros(width), jnp.ones(width)
    return {"scale": ones, "offset": zeros, "mean": jnp.copy(zeros), "variance": jnp.copy(ones)}


def _convolution(weights: tuple[Array, Array], x: Array) -> Array:
    kernel, bias = weights
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout) + bias[None, None, None]


def _normalised(norm: dict[str, Array], x: Array) -> Array:
    """ReLU of the batch normalisation with running moments."""
    factor = norm["scale"] * jax.lax.rsqrt(norm["variance"] + BATCH_NORM_EPSILON)
    centred = x - norm["mean"][None, None, None]
    return jax.nn.relu(centred * factor[None, None, None] + norm["offset"][None, None, None])


def _head(layers: tuple[Any, Any, Any], x: Array) -> Array:
    convolution, norm, linear = layers
    flat = _normalised(norm, _convolution(convolution, x)).reshape(x.shape[0], -1)  # [B, H * W * channels]
    return _linear(linear, flat)


def _linear(weights: tuple[Array, Array], x: Array) -> Array:
    return x @ weights[0] + weights[1][None]


def for_our_search(resnet: ResNet, shape: tuple[int, int]) -> Callable[[Any, Observation], tuple[Array, Array]]:
    """The network as `GameModel.evaluate` of a game of two, on our planes [B, H * W, C]."""

    def evaluate(params: Any, observation: Observation) -> tuple[Array, Array]:
        planes = observation.agent_view
        logits, value = resnet.apply(params, planes.reshape(planes.shape[0], *shape, -1))  # [B, H, W, C]
        return logits, jnp.stack([value, -value], axis=1)

    return evaluate


class _SelfPlayStep(NamedTuple):
    """What the example keeps of each ply, [T, B, ...]."""

    observation: Array
    reward: Array
    terminated: Array
    action_weights: Array
    discount: Array


def make_self_play(
    resnet: ResNet, num_games: int, num_plies: int, num_simulations: int = NUM_SIMULATIONS
) -> Callable[[Any, Key], _SelfPlayStep]:
    """The example's self-play on connect four: (params, key) -> T plies of B games from their start. Jit it."""
    modules = installed()
    assert modules is not None
    pgx, mctx = modules
    from pgx.experimental import auto_reset

    env = pgx.make(IDS["connect_four"])
    step_or_reset = auto_reset(env.step, env.init)

    def step(params: Any, state: Any, key: Key) -> tuple[Any, _SelfPlayStep]:
        search_key, step_key = jax.random.split(key)
        logits, value = resnet.apply(params, state.observation)
        found = mctx.gumbel_muzero_policy(
            params,
            search_key,
            mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state),
            _recurrent(mctx, env, resnet),
            num_simulations,
            invalid_actions=~state.legal_action_mask,
            qtransform=mctx.qtransform_completed_by_mix_value,
            gumbel_scale=1.0,
        )
        after = jax.vmap(step_or_reset)(state, found.action, jax.random.split(step_key, num_games))
        reward = after.rewards[jnp.arange(num_games), state.current_player]
        discount = jnp.where(after.terminated, 0.0, -1.0)
        return after, _SelfPlayStep(state.observation, reward, after.terminated, found.action_weights, discount)

    def self_play(params: Any, key: Key) -> _SelfPlayStep:
        init_key, play_key = jax.random.split(key)
        states = jax.vmap(env.init)(jax.random.split(init_key, num_games))
        keys = jax.random.split(play_key, num_plies)
        played: _SelfPlayStep = jax.lax.scan(lambda state, key: step(params, state, key), states, keys)[1]
        return played

    return self_play


def _recurrent(mctx: ModuleType, env: Any, resnet: ResNet) -> Callable[..., tuple[Any, Any]]:
    def recurrent(params: Any, _key: Key, action: Array, state: Any) -> tuple[Any, Any]:
        mover = state.current_player
        after = jax.vmap(env.step)(state, action)
        logits, value = resnet.apply(params, after.observation)
        logits -= jnp.max(logits, axis=1, keepdims=True)
        output = mctx.RecurrentFnOutput(
            reward=after.rewards[jnp.arange(mover.shape[0]), mover],
            discount=jnp.where(after.terminated, 0.0, -1.0),
            prior_logits=jnp.where(after.legal_action_mask, logits, jnp.finfo(logits.dtype).min),
            value=jnp.where(after.terminated, 0.0, value),
        )
        return output, after

    return recurrent


def make_random_play(
    name: str, num_games: int, num_plies: int, choose: Callable[[Key, Array], Array]
) -> tuple[Callable[[Any, Key], tuple[Any, Array]], Any]:
    """((states, key) -> states T plies later and how many games ended, the first states) of pgx's game.

    Args:
        name: ours, of `IDS`.
        num_games: B.
        num_plies: T.
        choose: (key, legal actions [B, A]) -> actions [B].
    """
    modules = installed()
    assert modules is not None
    pgx, _ = modules
    from pgx.experimental import auto_reset

    env = pgx.make(IDS[name])
    step_or_reset = jax.vmap(auto_reset(env.step, env.init))

    def step(states: Any, key: Key) -> tuple[Any, Array]:
        act_key, step_key = jax.random.split(key)
        action = choose(act_key, states.legal_action_mask)
        states = step_or_reset(states, action, jax.random.split(step_key, num_games))
        return states, jnp.sum(states.terminated)

    def play(states: Any, key: Key) -> tuple[Any, Array]:
        states, ended = jax.lax.scan(step, states, jax.random.split(key, num_plies))
        return states, jnp.sum(ended)

    return play, jax.jit(jax.vmap(env.init))(jax.random.split(jax.random.key(0), num_games))
