"""What never fails in games of the package alone, by random players and by one that stalls."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest
from envs.ringrift.against_plain import batched, compiled, on_cells

from stoix_like.envs.boards.ringrift import max_plies
from stoix_like.envs.ringrift import rules as play
from stoix_like.envs.ringrift import state as states_of
from stoix_like.envs.ringrift.actions import PAIR, PAY, PLACE, REGION, SEGMENT, SKIP, SWAP, WHOLE
from stoix_like.envs.ringrift.endings import outcome
from stoix_like.ops import trees

GAMES = [(board_name, num_players) for board_name in ("hex8", "square8") for num_players in (2, 3, 4)]
FEW = [("hex8", 2), ("square8", 3)]
#: From what a player who stalls would rather do: nothing, then what raises S the least.
STALLING = {SKIP: 0, SWAP: 1, PLACE: 2, SEGMENT: 3, PAIR: 4, WHOLE: 5, PAY: 6, REGION: 20}


class Counts(NamedTuple):
    """What lies where, [N], of states."""

    rings: np.ndarray  # in hands, on the board and eliminated
    progress: np.ndarray  # S = markers + collapsed cells + eliminated rings
    potential: np.ndarray  # S + collapsed cells
    has_stack: np.ndarray  # [N, C] bool


def counts_of(found, states):
    """The counts of states in which each cell holds at most one thing, and stacks have no gaps."""
    words = states.rings, states.markers, states.collapsed
    rings, markers, collapsed = (on_cells(found, each) for each in words)  # [N, H, P, C], then [N, P, C]
    for bits, has in zip(words, (rings, markers, collapsed), strict=True):
        assert np.bitwise_count(bits).sum() == has.sum()  # nothing lies beside the board
    levels = rings.sum(axis=2)  # [N, H, C], from the top
    assert (levels <= 1).all()
    assert (levels[:, 1:] <= levels[:, :-1]).all()
    assert (levels[:, 0] + markers.sum(axis=1) + collapsed.sum(axis=1) <= 1).all()
    eliminated = states.eliminated.sum(axis=1, dtype=int)
    num_collapsed = collapsed.sum(axis=(1, 2))
    progress = markers.sum(axis=(1, 2)) + num_collapsed + eliminated
    num_rings = rings.sum(axis=(1, 2, 3)) + states.hand.sum(axis=1, dtype=int) + eliminated
    return Counts(num_rings, progress, progress + num_collapsed, levels[:, 0] > 0)


def assert_step_holds(found, before, actions, after):
    """Of the counts before and after actions, and of states that are running."""
    (states, counts), (later, counts_later) = before, after
    kind, start = found.actions.kind[actions], found.actions.start[actions]
    is_pair = kind == PAIR
    recovers = is_pair & ~np.take_along_axis(counts.has_stack, np.maximum(start, 0)[:, None], axis=1)[:, 0]
    waits = np.isin(kind, (PLACE, SKIP, SWAP)) | recovers
    assert (counts_later.rings == counts.rings).all()
    assert (counts_later.progress >= counts.progress).all()
    assert (counts_later.potential == counts.potential)[waits].all()
    assert (counts_later.potential > counts.potential)[~waits].all()
    assert np.isin(later.phase, (states_of.LINE, states_of.LINE_PAYMENT))[recovers].all()  # either raises it
    assert (later.player == states.player)[recovers].all()


def assert_outcomes_hold(states, outcomes):
    is_over = states.ending != states_of.NOT_OVER
    assert ((states.phase == states_of.OVER) == is_over).all()
    assert (outcomes[~is_over] == 0).all()
    assert np.abs(outcomes.sum(axis=1)).max() < 1e-6  # thirds of four players
    has_winner = is_over & (states.winner >= 0)
    assert (outcomes[has_winner, states.winner[has_winner]] == 1).all()
    assert (states.winner >= 0)[is_over & (states.ending != states_of.STALEMATE)].all()


def play_alone(found, num_games, generator, weigh=None):
    """How many decisions games took until all were over; of the legal actions one with the least weight is taken."""
    states = batched([found.init()] * num_games)
    counts = counts_of(found, states)
    for ply in range(max_plies(found.rules) + 1):
        legal, outcomes = (np.asarray(each) for each in found.view(states))
        is_running = legal.any(axis=1)
        assert_outcomes_hold(states, outcomes)
        assert (is_running == (states.phase != states_of.OVER)).all()
        if not is_running.any():
            return ply
        order = generator.random(legal.shape) + (0 if weigh is None else weigh(found, states))
        actions = np.where(legal, order, np.inf).argmin(axis=1)
        after = trees.where(is_running, found.step(states, actions), states)
        after = jax.tree.map(np.asarray, after)
        counts_after = counts_of(found, after)
        running = np.flatnonzero(is_running)
        assert_step_holds(found, *(pick(each, running) for each in ((states, counts), actions, (after, counts_after))))
        states, counts = after, counts_after
    raise AssertionError("longer than the bound")


def pick(tree, games):
    return jax.tree.map(lambda leaf: leaf[games], tree)


def stalling(found, states):
    """[N, A] what a player who stalls would not do: payments weigh what the cap of the stack is high."""
    actions = found.actions
    kinds = np.array([STALLING[kind] for kind in actions.kind])
    rings = on_cells(found, states.rings)  # [N, H, P, C]
    caps = np.logical_and.accumulate(rings, axis=1).sum(axis=(1, 2))  # [N, C]
    return kinds + np.where(actions.kind == PAY, caps[:, np.maximum(actions.start, 0)], 0)


@pytest.mark.parametrize(("board_name", "num_players"), FEW)
def test_random_games_keep_what_never_fails_and_end(board_name, num_players):
    assert play_alone(compiled(board_name, num_players), 5, np.random.default_rng(0)) > 60


@pytest.mark.parametrize(("board_name", "num_players"), FEW)
def test_games_of_players_who_stall_end_within_the_bound(board_name, num_players):
    assert play_alone(compiled(board_name, num_players), 5, np.random.default_rng(0), stalling) > 100


@pytest.mark.full
@pytest.mark.parametrize(("board_name", "num_players"), GAMES)
def test_hundreds_of_games_keep_what_never_fails_and_end(board_name, num_players):
    found, generator = compiled(board_name, num_players), np.random.default_rng(1)
    play_alone(found, 250, generator)
    play_alone(found, 250, generator, stalling)


def test_a_state_alone_goes_as_in_a_batch():
    found, generator = compiled("hex8", 2), np.random.default_rng(2)
    legal_actions = functools.partial(play.legal_actions, found.rules, found.actions)

    @jax.jit
    def alone(state, action):
        after = play.step(found.rules, found.actions, state, action)
        return after, legal_actions(after), outcome(found.rules, after)

    states = batched([found.init()] * 5)
    for _ in range(40):
        actions = np.array([generator.choice(np.flatnonzero(legal)) for legal in np.asarray(found.view(states)[0])])
        after = found.step(states, actions.astype(np.int32))
        together = jax.tree.map(np.asarray, (after, *found.view(after)))
        for index, action in enumerate(actions):
            single = jax.tree.map(np.asarray, alone(pick(jax.tree.map(np.asarray, states), index), action))
            jax.tree.map(np.testing.assert_array_equal, single, pick(together, index))
        states = after
