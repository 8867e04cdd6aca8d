"""How far the training pass is from what was sampled: the same tokens, read in another order of sums."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.text.reading import pack_rows, read_rows
from stoix_like.bench.agents.policies import Case, compiled_rollout, make_case
from stoix_like.bench.timing.measure import Measurement
from stoix_like.types import NetworkParams

DTYPES = ("float32", "bfloat16")


def gap_rows(params: NetworkParams, leaves: dict[str, Any]) -> Iterator[Measurement]:
    """Mean distance of the log-probabilities of sampled tokens, by the type of the arithmetic."""
    for dtype in DTYPES:
        case = make_case(params, leaves | {"compute_dtype": dtype})
        episodes, _ = compiled_rollout(case)()
        gap = np.abs(log_prob_gap(case, episodes))
        beyond = float(np.mean(gap > np.log(1.2)))
        note = f"largest {gap.max():.2g}, of {gap.size:,} tokens; {beyond:.2%} of the ratios are beyond 1.2 or 1 / 1.2"
        yield Measurement(f"agent/log_prob_gap/{dtype}", float(gap.mean()), "nats", note=note)


def log_prob_gap(case: Case, episodes: Episodes) -> np.ndarray:
    """[tokens] log-probability in the training pass less that of sampling, of the chosen tokens."""
    packed = pack_rows(case.agent.rules.slots, episodes.tokens, episodes.is_valid)
    logits, _ = jax.jit(functools.partial(read_rows, case.agent.model))(case.params, case.lexicon.prompt, packed)
    chosen = episodes.chosen.reshape(logits.shape[:-1])
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), chosen[..., None], axis=-1)
    gap = log_prob.reshape(episodes.log_prob.shape) - episodes.log_prob
    return np.asarray(gap)[np.asarray(episodes.is_chosen)]
