"""The rules as functions of one state: the first position, a step, and what is legal.

One decision is a step. A step computes the effects of an action and then who decides what next; the cells that a player
may choose follow from the state, and are computed again where they are asked for.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.ringrift.actions import (
    PAY,
    PLACE,
    REGION,
    SEGMENT,
    SKIP,
    SWAP,
    WHOLE,
    Actions,
    actions_by_bit,
    num_rows,
    places_in_words,
)
from stoix_like.envs.ringrift.boards import MAX_PLACED, WORD
from stoix_like.envs.ringrift.effects import Act, Effects, effects
from stoix_like.envs.ringrift.lines import line_starts, recoveries
from stoix_like.envs.ringrift.mobility import reach, stacks_of
from stoix_like.envs.ringrift.sets import Cells, board_words, joined, kept, packed, unpacked
from stoix_like.envs.ringrift.state import (
    CAPTURE,
    CHAIN,
    FORCED_ELIMINATION,
    LINE,
    LINE_PAYMENT,
    MOVEMENT,
    OVER,
    PLACEMENT,
    TERRITORY,
    TERRITORY_PAYMENT,
    Position,
    RingRiftState,
    Rules,
    Sets,
    empty_state,
    one,
    position_of,
    sets_of,
    take,
)
from stoix_like.envs.ringrift.turn import chosen, next_decision
from stoix_like.types import Array


def init(rules: Rules) -> RingRiftState:
    """The empty board. Every ring can move there, so one to three may be placed on each cell."""
    state = empty_state(rules)
    everywhere = board_words(rules.board, np.ones((MAX_PLACED, rules.board.num_cells), bool))
    return state._replace(places=jnp.asarray(everywhere), candidate=jnp.int8(0))


def step(rules: Rules, actions: Actions, state: RingRiftState, action: Array) -> RingRiftState:
    """The state after a legal action of the player to move."""
    act = decoded(actions, action)
    position = position_of(state)
    sets = sets_of(rules, position)
    done = kept(lambda: effects(rules, state, position, sets, act), one(state))
    after = _after(state, act, done)
    is_skip = (act.kind == SKIP) | (act.kind == SWAP)
    is_mover = jnp.arange(rules.num_players) == state.player
    has_acted = state.has_acted | ~(is_skip | (state.phase == FORCED_ELIMINATION))
    changed = state._replace(
        hand=(state.hand - done.placed * is_mover).astype(jnp.int8),
        eliminated=(state.eliminated + done.eliminated * is_mover).astype(jnp.int8),
        focus=packed(act.first.where(act.kind == PLACE) | act.last),
        has_acted=has_acted,
        is_recovery=state.is_recovery | done.is_slide,
        is_swapped=state.is_swapped ^ (act.kind == SWAP),
    )
    return next_decision(rules, changed, done.position, after)


def decoded(actions: Actions, action: Array) -> Act:
    """What an action means."""
    table = jnp.asarray(_table(actions))[action]
    width = actions.first.shape[1]
    words = table[2:].reshape(3, width)
    kind, number = table[0].astype(jnp.int32), table[1].astype(jnp.int32)
    return Act(kind, number, *(unpacked(row) for row in words))


def _table(actions: Actions) -> np.ndarray:
    """[A, 2 + 3 W] uint32: all that is read of an action, in one row."""
    numbers = np.stack([actions.kind, actions.number], axis=1).astype(np.uint32)
    return np.concatenate([numbers, actions.first, actions.last, actions.between], axis=1)


def _after(state: RingRiftState, act: Act, done: Effects) -> Array:
    """The first phase that may follow an action."""
    moved = jnp.where(done.is_capture, CHAIN, CAPTURE)
    moved = jnp.where(done.is_slide, LINE_PAYMENT, moved)
    paid = jnp.where(state.phase == LINE_PAYMENT, LINE, TERRITORY)
    paid = jnp.where(state.phase == FORCED_ELIMINATION, OVER, paid)
    skipped = jnp.where(state.phase == PLACEMENT, MOVEMENT, LINE)
    skipped = jnp.where(state.phase == TERRITORY, FORCED_ELIMINATION, skipped)
    follows = moved
    for kind, phase in (
        (PLACE, MOVEMENT),
        (WHOLE, LINE_PAYMENT),
        (SEGMENT, LINE),
        (REGION, TERRITORY_PAYMENT),
        (PAY, paid),
        (SKIP, skipped),
        (SWAP, PLACEMENT),
    ):
        follows = jnp.where(act.kind == kind, phase, follows)
    return follows


def legal_sets(rules: Rules, state: RingRiftState) -> Cells:
    """[rows] the sets of legal actions, as `Actions` orders them. Empty when the game is over."""
    position = position_of(state)
    sets = sets_of(rules, position)
    own = take(sets.control, state.player)
    starts = line_starts(rules, position, state.player)
    rows = [
        unpacked(state.places),
        *kept(lambda: _pairs(rules, state, position, sets, own), one(state)),
        *(lines.where(state.phase == LINE) for lines in starts),
        unpacked(state.regions),
        _payers(state, sets, own).at(None),
        _others(rules, state).at(None),
    ]
    return joined(rows)


def _pairs(rules: Rules, state: RingRiftState, position: Position, sets: Sets, own: Cells) -> list[Cells]:
    """By distance, [D] by direction: the cells from which something may go that far."""
    focus = unpacked(state.focus)
    movers = chosen(focus.any(), focus & own, own)
    stacks = kept(lambda: stacks_of(rules, position), one(state))
    found = reach(rules, sets, stacks.cap, stacks)
    moves, captures = state.phase == MOVEMENT, (state.phase >= MOVEMENT) & (state.phase <= CHAIN)
    rows = [
        (move.where(moves) | capture.where(captures)) & movers.at(None)
        for move, capture in zip(found.moves, found.captures, strict=True)
    ]
    slides = recoveries(rules, position, sets)
    recovery = take(slides.to_lines | slides.to_empty | slides.strikes, state.player)
    return [rows[0] | recovery.where(moves), *rows[1:]]


def _payers(state: RingRiftState, sets: Sets, own: Cells) -> Cells:
    """The cells that may pay."""
    is_paying = (state.phase == LINE_PAYMENT) | (state.phase == TERRITORY_PAYMENT)
    buried = take(sets.buried, state.player)
    extracts = state.is_recovery & buried.any()  # a strike may have bared the only ring left, which pays then
    return chosen(extracts, buried, own).where(is_paying | (state.phase == FORCED_ELIMINATION))


def _others(rules: Rules, state: RingRiftState) -> Cells:
    """Skip and swap, as the two lowest cells."""
    swaps = jnp.bool_(rules.has_swap) & can_swap(state)
    skip, swap = (int(bit) for bit in rules.board.bits[:2])
    word = (state.can_skip.astype(jnp.uint32) << skip) | (swaps.astype(jnp.uint32) << swap)
    return Cells((word, *([jnp.zeros_like(word)] * (rules.board.num_words - 1))))


def can_swap(state: RingRiftState) -> Array:
    """Whether the players may exchange their colours: at the first placement of the second one."""
    is_first = (state.turn == 2) & (state.player == 1) & (state.phase == PLACEMENT)
    return is_first & ~state.is_swapped


def legal_actions(rules: Rules, actions: Actions, state: RingRiftState) -> Array:
    """[A] bool."""
    words, bits = places_in_words(actions, num_rows(rules))
    return (jnp.concatenate(legal_sets(rules, state).words)[words] >> bits) & 1 != 0


def random_action(rules: Rules, actions: Actions, state: RingRiftState, number: Array) -> Array:
    """A legal action, each as likely, by a random [] uint32: the bit of that rank among those of all sets."""
    sets = kept(lambda: legal_sets(rules, state), one(state))
    up_to = sets.size().astype(jnp.float32) @ np.tri(num_rows(rules), dtype=np.float32).T  # [rows] in those up to each
    total = jnp.maximum(up_to[-1], 1.0).astype(jnp.uint32)
    row, rank = _part_of_rank(up_to, (number % total).astype(jnp.float32))
    words = jnp.stack([word[row] for word in sets.words])  # [W]
    counts = jax.lax.population_count(words).astype(jnp.float32)
    index, rank = _part_of_rank(jnp.cumsum(counts), rank)
    bit = _bit_of_rank(words[index], rank.astype(jnp.int32))
    table = actions_by_bit(actions, num_rows(rules), rules.board.num_words)
    return jnp.asarray(table)[row, index * WORD + bit]


def _part_of_rank(up_to: Array, rank: Array) -> tuple[Array, Array]:
    """(the part that the entry of a rank lies in, its rank in this part), from the entries in the parts up to each."""
    is_before = up_to <= rank
    return jnp.sum(is_before, dtype=jnp.int32), rank - jnp.max(jnp.where(is_before, up_to, 0.0))


def _bit_of_rank(word: Array, rank: Array) -> Array:
    """The place of the set bit with so many set bits below it."""
    place = jnp.int32(0)
    for width in (16, 8, 4, 2, 1):
        low = (word >> place.astype(jnp.uint32)) & jnp.uint32((1 << width) - 1)
        count = jax.lax.population_count(low).astype(jnp.int32)
        is_above = rank >= count
        rank = jnp.where(is_above, rank - count, rank)
        place = jnp.where(is_above, place + width, place)
    return place
