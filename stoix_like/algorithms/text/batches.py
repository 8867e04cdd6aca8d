"""Rows of tokens in minibatches, and gradients that are added up over parts of one.

The rows of turns that were not played hold no token. Within each logical shard of episodes they come last, the others
in random order, and are dealt out to the minibatches in turn, so of each shard these have equally many rows with
tokens, or one more. Within
a minibatch the long rows come first. Each part of it is read at the least of a few lengths that holds its rows, and
parts without a token are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.text.reading import PackedRows
from stoix_like.language.spans import SpanTable, is_counted, spans_of
from stoix_like.types import Array, Key, Params

LossSum = Callable[[Params, "TokenRows"], tuple[Array, dict[str, Array]]]  # sums over tokens, not means


SHARES_OF_CONVERSATIONS = (0.25, 0.5, 0.75, 1.0)  # of the slots of a row: the lengths that are compiled
SHARES_OF_TURNS = (0.625, 0.75, 1.0)  # whose lengths differ less; each share compiles the decoder once more


class TokenRows(NamedTuple):
    """Rows that are learned from, and what belongs to the tokens that the agent chose.

    T' turns of a row, G slots of an answer.
    """

    packed: PackedRows  # [R, ...]
    chosen: Array  # [R, T', G] int32
    is_chosen: Array  # [R, T', G] bool
    log_prob: Array  # [R, T', G] float32 when they were chosen
    value: Array  # [R, T', G] float32 before they were
    advantage: Array  # [R, T', G] float32
    target: Array  # [R, T', G] float32, of the value
    is_answer: Array  # [R, T', G] bool: it stands between the tags of a well-formed answer
    reference: Array  # [R, T', G] float32, the log-probability by a reference; 0 without one


def answer_tokens(table: SpanTable, episodes: Episodes) -> Array:
    """[N, T, G] bool: the agent wrote the token between the tags of the answer of a turn that is well-formed.

    Of several answers the first counts, as it does for the world.
    """
    by_answer = (-1, episodes.chosen.shape[-1])
    spans = spans_of(table, episodes.chosen.reshape(by_answer), episodes.is_chosen.reshape(by_answer))
    is_answer = is_counted(spans, "answer_only")
    follows = ~is_answer & (jnp.cumsum(is_answer, axis=1) > 0)  # the first answer
    is_first = is_answer & (jnp.cumsum(follows, axis=1) == 0)
    return is_first.reshape(episodes.chosen.shape) & episodes.turns.is_well_formed[..., None]


def dealt_rows(key: Key, lengths: Array, num_shards: int, num_minibatches: int) -> Array:
    """[num_minibatches, shards, R / shards / num_minibatches] row numbers within shards, each row once.

    `lengths` [R] are of the rows, 0 without a token. Rows of an episode stand together, and shards are runs of them.
    """
    by_shard = lengths.reshape(num_shards, -1)
    draws = jax.vmap(lambda key: jax.random.uniform(key, by_shard.shape[1:]))(jax.random.split(key, num_shards))
    order = jnp.argsort(jnp.where(by_shard > 0, draws, draws + 1.0), axis=1)  # [shards, R / shards]
    dealt = order.reshape(num_shards, -1, num_minibatches)
    of_dealt = jnp.take_along_axis(by_shard, order, axis=1).reshape(dealt.shape)
    by_length = jnp.argsort(-of_dealt, axis=1)
    return jnp.moveaxis(jnp.take_along_axis(dealt, by_length, axis=1), 2, 0)


def take_rows(rows: Any, indices: Array, num_parts: int) -> Any:
    """The rows of a minibatch [shards, b] in parts, [num_parts, shards * b / num_parts, ...]."""
    num_shards, length = indices.shape

    def take(x: Array) -> Array:
        by_shard = x.reshape(num_shards, -1, *x.shape[1:])
        chosen = jax.vmap(lambda rows, i: jnp.take(rows, i, axis=0))(by_shard, indices)  # [shards, b, ...]
        parts = chosen.reshape(num_shards, num_parts, length // num_parts, *x.shape[1:])
        return jnp.swapaxes(parts, 0, 1).reshape(num_parts, -1, *x.shape[1:])

    return jax.tree.map(take, rows)


def mean_gradient(
    loss: LossSum, params: Params, parts: TokenRows, shares: Sequence[float] | None = None
) -> tuple[Params, dict[str, Array]]:
    """(gradient, metrics) of the mean loss over all chosen tokens of a minibatch in parts [num_parts, rows, ...].

    Sums over the tokens of each part are added up and divided once, so the number of parts does not matter. `shares`
    are those of `at_least_length`.
    """
    num_tokens = jnp.maximum(parts.is_chosen.sum(), 1).astype(jnp.float32)
    differentiate = jax.grad(loss, has_aux=True)
    shapes = jax.eval_shape(differentiate, params, jax.tree.map(lambda x: x[0], parts))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def add(total: Any, part: TokenRows) -> tuple[Any, None]:
        def read(packed: PackedRows) -> Any:
            return differentiate(params, part._replace(packed=packed))

        found = jax.lax.cond(part.is_chosen.any(), lambda: at_least_length(part.packed, read, shares), lambda: nothing)
        return jax.tree.map(jnp.add, total, found), None

    total = jax.lax.scan(add, nothing, parts)[0]
    gradient, metrics = jax.tree.map(lambda x: x / num_tokens, total)
    return gradient, metrics


def at_least_length(
    packed: PackedRows, read: Callable[[PackedRows], Any], shares: Sequence[float] | None = None
) -> Any:
    """What `read` makes of rows, cut to the least of the compiled lengths that holds them all.

    These are `shares` of the slots of a row; None = those of conversations, or of turns.
    """
    slots = packed.tokens.shape[1]
    if shares is None:
        shares = SHARES_OF_CONVERSATIONS if packed.before.shape[1] > 1 else SHARES_OF_TURNS
    lengths = sorted({max(1, round(share * slots)) for share in shares})

    def cut(length: int) -> Callable[[], Any]:
        return lambda: read(packed._replace(tokens=packed.tokens[:, :length]))

    branch = jnp.searchsorted(jnp.array(lengths), packed.length.max())
    return jax.lax.switch(branch, [cut(length) for length in lengths])
