"""How fast agents play and learn: our loop, one compiled program, beside loops on the host, and beside the peak."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.playing import WorldState
from stoix_like.algorithms.agent.setup import make_agent
from stoix_like.algorithms.text import token_ppo, token_rows, token_state
from stoix_like.algorithms.text.token_state import Setup, TokenPPOState
from stoix_like.bench.agents.conversations import Conversation
from stoix_like.bench.agents.host_loops import make_loops
from stoix_like.bench.agents.policies import Case, compiled_rollout, make_case, pretrained, text_world, texts_of
from stoix_like.bench.agents.precision import gap_rows
from stoix_like.bench.timing.measure import (
    Measurement,
    Timing,
    comparison_row,
    matrix_product_peak,
    peak_flops,
    time_interleaved,
)
from stoix_like.config.sections.agent_runs import agent_config
from stoix_like.networks.transformer.model import with_policy
from stoix_like.runtime.runs.agents import make_tokenizer
from stoix_like.types import NetworkParams

#: FrozenLake in coordinates, an action a turn, 128 episodes: 16 groups of 8.
LEAVES: dict[str, Any] = {
    "task_id": "FrozenLake-text-v0",
    "kwargs": {"intended_p": 1.0},
    "context": "full",
    "rendering": "coordinates",
    "num_turns": 10,
    "actions_per_turn": 1,
    "num_envs": 128,
    "group_size": 8,
}
PRETRAINED = (25, 32)  # updates and episodes of each, after which the answers are well-formed
REPETITIONS = 5
WAYS = {
    "re_prefill": "host loop that reads all again each turn, as RAGEN",
    "keeps_cache": "host loop that keeps the cache, a call a turn",
    "loop_per_token": "host loop that keeps the cache, a call a token, as lmpo",
}


class Played(NamedTuple):
    """What one call of our loop does."""

    tokens: int  # chosen
    read: int  # all tokens of all rows, without the prompt
    world_steps: int
    well_formed: float  # share of the answers


def agent_speed_suite() -> Iterator[Measurement]:
    """Our loop beside three on the host; alone with single turns; learning; and its distance from what was sampled."""
    params = pretrained(LEAVES, *PRETRAINED)
    yield from rollout_rows(make_case(params, LEAVES))
    yield single_turn_row(make_case(params, LEAVES | {"context": "single_turn"}))
    yield train_row(params, LEAVES)
    yield from gap_rows(params, LEAVES)


def rollout_rows(case: Case) -> Iterator[Measurement]:
    """Our loop beside each of those on the host, on the same levels with the same keys."""
    ours, loops = compiled_rollout(case), make_loops(case)
    episodes, world = ours()
    played, texts = _played(episodes, world), texts_of(case, episodes)
    same = {name: _num_same(texts, play()) for name, play in loops.items()}
    timings = time_interleaved({"ours": ours, **loops}, REPETITIONS)
    for name, of_reference in WAYS.items():
        both = {"ours": timings["ours"], "theirs": timings[name]}
        steps = " and ".join(f"{played.world_steps / timing.seconds:,.0f}" for timing in both.values())
        note = f"{of_reference}; {steps} world steps/s; {same[name]} of {len(texts)} conversations are ours"
        yield comparison_row(f"agent/rollout/{name}", both, played.tokens, "tokens/s", note)


def single_turn_row(case: Case) -> Measurement:
    """Our loop alone, where a turn attends to itself."""
    ours = compiled_rollout(case)
    played, slots = _played(*ours()), case.agent.rules.slots
    rows = case.keys.shape[0] * case.agent.rules.group_size * slots.state
    timings = _beside_peak(ours, rows, case.agent.model.sizes.width)
    row = _row_of_peak("agent/rollout/single_turn", case.params, played, timings, rows, passes=1)
    steps = played.world_steps / timings["ours"].seconds
    about = f"{steps:,.0f} world steps/s, {played.well_formed:.0%} of the answers well-formed"
    return row._replace(note=f"{about}; {row.note}")


def train_row(params: NetworkParams, leaves: Mapping[str, Any]) -> Measurement:
    """A pass over the rows of episodes that the policy played, its gradient steps included."""
    setup, state, episodes, world = _collected(params, leaves)
    rows = jax.jit(functools.partial(token_rows.compute_rows, setup))(state, episodes)
    optimize = jax.jit(functools.partial(token_ppo.optimize, setup))

    def learn() -> Any:
        return optimize(state, rows)

    played, minibatches = _played(episodes, world), setup.settings.num_minibatches
    num_read = rows.packed.tokens.size // minibatches  # slots of a minibatch
    timings = _beside_peak(learn, num_read, setup.agent.model.sizes.width)
    row = _row_of_peak("agent/train", params, played, timings, num_read, passes=3)
    read = played.read / timings["ours"].seconds
    return row._replace(note=f"chosen tokens; {read:,.0f} tokens/s with those of the world; {row.note}")


def _collected(params: NetworkParams, leaves: Mapping[str, Any]) -> tuple[Setup, TokenPPOState, Episodes, WorldState]:
    """What is learned from: the episodes of a policy, whose values are those of an untrained head."""
    config = agent_config(**leaves, epochs=1)
    agent = make_agent(text_world(config), make_tokenizer(), config, config.token_ppo.critic)
    setup = Setup(agent, token_state.settings_of(config, agent))
    num_groups = config.environment.num_envs // config.agent.group_size
    state = token_state.init(setup, token_state.make_hyper(config), num_groups, jax.random.key(0))
    state = state._replace(params=with_policy(state.params, params))
    return setup, state, *jax.jit(functools.partial(token_ppo.collect, setup))(state)


def _played(episodes: Episodes, world: WorldState) -> Played:
    turns = episodes.turns
    return Played(
        tokens=int(episodes.is_chosen.sum()),
        read=int(episodes.is_valid.sum()),
        world_steps=int(world.num_actions.sum()),
        well_formed=float(turns.is_well_formed.sum() / turns.was_played.sum()),
    )


def _num_same(texts: list[str], conversations: list[Conversation]) -> int:
    return sum(text == conversation.text for text, conversation in zip(texts, conversations, strict=True))


def _beside_peak(ours: Callable[[], Any], rows: int, width: int) -> dict[str, Timing]:
    return time_interleaved({"ours": ours, "peak": matrix_product_peak(rows, width)}, REPETITIONS)


def _row_of_peak(
    name: str, params: NetworkParams, played: Played, timings: Mapping[str, Timing], rows: int, passes: int
) -> Measurement:
    """Chosen tokens per second, of as many as the fastest products would allow: `needed_flops` a token."""
    width = params.torso.embedding.shape[1]
    peak = peak_flops(rows, width) / timings["peak"].seconds
    needed = needed_flops(params, played, passes) / played.tokens
    rate = played.tokens / timings["ours"].seconds
    formula = f"{passes} * 2 * ({num_weights(params):,} weights * {played.read:,} tokens read"
    formula += f" + {params.torso.embedding.size:,} of the output layer * {played.tokens:,} chosen)"
    note = f"ceiling: {peak / 1e9:.0f} GFLOP/s at {rows}x{width}x{width} / {needed / 1e6:.2f} MFLOP, {formula} in all"
    spread = timings["ours"].spread
    return Measurement(name, rate, "tokens/s", spread, ceiling=peak / needed, share=rate * needed / peak, note=note)


def needed_flops(params: NetworkParams, played: Played, passes: int) -> float:
    """Operations in the products with weights that one call needs: two for each weight and token, times 3 to learn.

    Each token that is read passes all layers once, and each that is chosen the output layer. What attention adds is
    left out, and so is the prompt, which all rows share.
    """
    return passes * 2.0 * (num_weights(params) * played.read + params.torso.embedding.size * played.tokens)


def num_weights(params: NetworkParams) -> int:
    """The parameters of a policy without its embedding, which is its output layer too."""
    return sum(int(x.size) for x in jax.tree.leaves(params.torso.layers))
