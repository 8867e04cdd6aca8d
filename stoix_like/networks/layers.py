"""The pieces every network is made of: orthogonal dense layers, masked attention and a 3x3 convolution.

Dense layers flatten leading axes before the matrix product: the gradient is then one plain product, which XLA runs a
quarter faster on CPU than a contraction over two axes. Parameters are float32; `dtype` is the type of the arithmetic.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from stoix_like.networks.orthogonal import orthogonal
from stoix_like.types import Array

HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN = 2.0**0.5, 0.01, 1.0


class Dense(nn.Module):
    """[..., features] from [..., D]: an orthogonal dense layer on flattened leading axes."""

    features: int
    gain: float = HIDDEN_GAIN
    use_bias: bool = True
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., features] from [..., D]."""
        init = orthogonal(self.gain)
        layer = nn.Dense(self.features, use_bias=self.use_bias, dtype=self.dtype, kernel_init=init)
        return layer(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], self.features)


class MLP(nn.Module):
    """[..., widths[-1]] from [..., D]: dense layers, each followed by a ReLU."""

    widths: tuple[int, ...]
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., widths[-1]] from [..., D]."""
        for width in self.widths:
            x = nn.relu(Dense(width, dtype=self.dtype)(x))
        return x


def masked_attention(query: Array, key: Array, value: Array, mask: Array, bias: Array) -> Array:
    """Weighted means of the values where the mask is True, [B, T, H, D].

    From query [B, T, H, D], key and value [B, S, H, D], a boolean mask [B, T, S] that the heads share, and what is
    added to the scores, [B, H, T, S]. Scores get a finite fill and weights exact zeros afterwards, so a
    row that may attend to nothing returns zeros, in value and in gradient. The softmax is float32 whatever the inputs'
    type.
    """
    mask = mask[:, None]  # [B, 1, T, S]
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))  # [B, H, T or S, D]
    scores = jnp.matmul(query, jnp.swapaxes(key, 2, 3)).astype(jnp.float32) * query.shape[-1] ** -0.5  # [B, H, T, S]
    scores = jnp.where(mask, scores + bias, jnp.finfo(jnp.float32).min)
    highest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    weights = jnp.where(mask, jnp.exp(scores - highest), 0.0)
    total = weights.sum(axis=-1, keepdims=True)
    weights = weights / jnp.where(total > 0.0, total, 1.0)
    return jnp.swapaxes(jnp.matmul(weights.astype(value.dtype), value), 1, 2)


_EPSILON = 1e-6  # added to a variance, as flax does


def _mean(rows: Array) -> Array:
    """[N, 1] from [N, D], as a matrix product: XLA's reduction over the last axis is slow on CPU. In full precision,
    which a GPU or TPU does not take by itself."""
    weights = jnp.full((rows.shape[1], 1), 1.0 / rows.shape[1])
    return jnp.matmul(rows, weights, precision=jax.lax.Precision.HIGHEST)


@jax.custom_vjp
def layer_norm(rows: Array, scale: Array, bias: Array) -> Array:
    """Layer normalisation (Ba et al. 2016, arXiv 1607.06450) of float32 rows [N, D], scaled and shifted by [D] each.

    Its gradient is written by hand: that of flax's LayerNorm takes longer on CPU, and a block has many of them.
    """
    return _layer_norm_forward(rows, scale, bias)[0]


def _layer_norm_forward(rows: Array, scale: Array, bias: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    centred = rows - _mean(rows)
    inverse = jax.lax.rsqrt(_mean(centred * centred) + _EPSILON)  # [N, 1]
    normed = centred * inverse
    return normed * scale[None] + bias[None], (normed, inverse, scale)


def _layer_norm_backward(kept: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    normed, inverse, scale = kept
    of_normed = gradient * scale[None]
    of_rows = inverse * (of_normed - _mean(of_normed) - normed * _mean(of_normed * normed))
    return of_rows, (gradient * normed).sum(axis=0), gradient.sum(axis=0)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


class ProductLayerNorm(nn.Module):
    """`layer_norm` over the last axis, with the parameters of flax's LayerNorm. Statistics are float32."""

    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., D] from [..., D]."""
        width = x.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (width,))
        bias = self.param("bias", nn.initializers.zeros, (width,))
        rows = x.reshape(-1, width).astype(jnp.float32)
        return layer_norm(rows, scale, bias).reshape(x.shape).astype(self.dtype)


class AttentionSublayer(nn.Module):
    """tokens + attention(norm(tokens), norm(context)): the pre-norm residual step."""

    num_heads: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, tokens: Array, context: Array, mask: Array, bias: Array) -> Array:
        """[B, T, D] from tokens [B, T, D], context [B, S, D], mask [B, T, S], True where attended, and what is added to
        the scores, [B, H, T, S]."""
        width = tokens.shape[-1]
        normed = ProductLayerNorm(dtype=self.dtype)(tokens)
        source = ProductLayerNorm(dtype=self.dtype)(context)
        query = Dense(width, gain=1.0, dtype=self.dtype)(normed)
        key, value = jnp.split(Dense(2 * width, gain=1.0, dtype=self.dtype)(source), 2, axis=-1)
        query, key, value = (x.reshape(*x.shape[:2], self.num_heads, -1) for x in (query, key, value))  # [B, T, H, D/H]
        attended = masked_attention(query, key, value, mask, bias).reshape(tokens.shape)
        # No bias: a token that attends to nothing must be left as it was.
        return tokens + Dense(width, gain=1.0, use_bias=False, dtype=self.dtype)(attended)


class Conv3x3(nn.Module):
    """A 3x3 convolution with zero padding, [B, R, C, features] from [B, R, C, D]. One kernel [3, 3, D, features].

    On "cpu" it is nine shifted slices and one matrix product: inside `lax.scan` the gradient of XLA's own convolution
    is 50-80 times slower there. Elsewhere it is the ordinary convolution. Both give the same numbers.
    """

    features: int
    platform: str
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, R, C, features] from [B, R, C, D]."""
        init = orthogonal(HIDDEN_GAIN)
        kernel = self.param("kernel", init, (3, 3, x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        x, kernel, bias = (a.astype(self.dtype) for a in (x, kernel, bias))
        convolve = _convolve_by_slices if self.platform == "cpu" else _convolve
        return convolve(x, kernel) + bias[None, None, None]


def _convolve(x: Array, kernel: Array) -> Array:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _convolve_by_slices(x: Array, kernel: Array) -> Array:
    rows, columns = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    slices = [padded[:, i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    patches = jnp.concatenate(slices, axis=-1)  # [B, R, C, 9 D], in the kernel's own order
    flat = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, kernel.shape[-1])
    return flat.reshape(*x.shape[:3], kernel.shape[-1])
