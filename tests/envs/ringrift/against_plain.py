"""The package's RingRift beside the plain one, decision by decision: batches of games that both play."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from envs.ringrift.plain import game
from envs.ringrift.plain.actions import Line, Move, Pay, Place, Region, Segment, Skip, Slide, Strike, Swap
from envs.ringrift.plain.position import Phase

from stoix_like.envs.ringrift import actions as action_lists
from stoix_like.envs.ringrift import rules as rule_functions
from stoix_like.envs.ringrift.boards import WORD
from stoix_like.envs.ringrift.endings import outcome
from stoix_like.envs.ringrift.state import make_rules

ENDINGS = (None, "rings", "territory", "only_owner", "last_player", "stalemate")
KINDS = {
    Place: action_lists.PLACE,
    Move: action_lists.PAIR,
    Slide: action_lists.PAIR,
    Strike: action_lists.PAIR,
    Line: action_lists.WHOLE,
    Segment: action_lists.SEGMENT,
    Region: action_lists.REGION,
    Pay: action_lists.PAY,
    Skip: action_lists.SKIP,
    Swap: action_lists.SWAP,
}


class Compiled(NamedTuple):
    """The package's functions over a batch, and its actions by what they mean."""

    rules: Any
    actions: Any
    init: Any  # () -> one state
    view: Any  # states -> (legal actions, outcomes)
    step: Any
    index: dict


@functools.cache
def compiled(board_name, num_players, has_swap=False):
    rules = make_rules(board_name, num_players, has_swap)
    actions = action_lists.make_actions(rules)
    legal = functools.partial(rule_functions.legal_actions, rules, actions)
    return Compiled(
        rules,
        actions,
        lambda: rule_functions.init(rules),
        jax.jit(jax.vmap(lambda state: (legal(state), outcome(rules, state)))),
        jax.jit(jax.vmap(functools.partial(rule_functions.step, rules, actions))),
        {key: index for index, key in enumerate(zip(*keys_of(actions), strict=True))},
    )


def keys_of(actions):
    """(kind, number, start, landing) of each action; the direction of a pair follows from its cells."""
    is_pair = actions.kind == action_lists.PAIR
    columns = actions.kind, np.where(is_pair, 0, actions.number), actions.start, actions.landing
    return [column.tolist() for column in columns]


def index_of(found, position, action):
    """The package's number of a plain action."""
    cells = position.board.index
    kind, number, start, landing = KINDS[type(action)], 0, -1, -1
    match action:
        case Place(cell, count):
            number, start = count, cells[cell]
        case Move(first, last) | Slide(first, last) | Strike(first, last):
            start, landing = cells[first], cells[last]
        case Line(line) | Segment(line):
            start, number = cells[line[0]], axis_of(found.rules.board, cells[line[0]], cells[line[1]])
        case Region(colour, region):
            start, number = min(cells[cell] for cell in region), (colour - 1) % (position.num_players + 1)
        case Pay(cell):
            start = cells[cell]
    return found.index[kind, number, start, landing]


def axis_of(board, first, second):
    return next(axis for axis in range(board.num_axes) if board.neighbor(first, axis) == second)


def on_cells(found, words):
    """Sets [..., W] as bools [..., C]."""
    bits = found.rules.board.bits
    return (words[..., bits // WORD] >> (bits % WORD).astype(np.uint32)) & 1 != 0


def owners(has):
    """Which of the players [..., P, C] has each cell, [..., C]; -1: none."""
    assert (has.sum(axis=-2) <= 1).all()
    return np.where(has.any(axis=-2), has.argmax(axis=-2), -1).astype(np.int8)


def facts_of_states(found, states):
    """What both describe, of the package's states: a dictionary for each."""
    legal, outcomes = (np.asarray(leaf) for leaf in found.view(states))
    states = jax.tree.map(np.asarray, states)
    columns = {
        "rings": owners(on_cells(found, states.rings)),  # [N, H, C], from the top
        "markers": owners(on_cells(found, states.markers)),
        "collapsed": owners(on_cells(found, states.collapsed)),
        "counts": np.concatenate([states.hand, states.eliminated], axis=1),
        "turn": np.stack([states.player, states.phase, states.ending, states.is_swapped], axis=1),
        "candidate": np.stack([states.candidate, states.rounds], axis=1),
        "legal": legal,
        "outcomes": outcomes,
    }
    return [{name: column[index] for name, column in columns.items()} for index in range(len(legal))]


def facts_of_position(found, position):
    """The same of a plain position."""
    cells, board = position.board.index, found.rules.board
    rings = np.full((board.max_height, board.num_cells), -1, np.int8)
    markers, collapsed = np.full((2, board.num_cells), -1, np.int8)
    for cell, stack in position.stacks.items():
        rings[: len(stack), cells[cell]] = np.array(stack[::-1]) - 1
    for cell, owner in position.markers.items():
        markers[cells[cell]] = owner - 1
    for cell, owner in position.collapsed.items():
        collapsed[cells[cell]] = owner - 1
    legal = np.zeros(found.actions.total, bool)
    if position.phase is not Phase.OVER:
        legal[[index_of(found, position, action) for action in game.legal(position)]] = True
    ending = ENDINGS.index(position.ending)
    return {
        "rings": rings,
        "markers": markers,
        "collapsed": collapsed,
        "counts": [*position.hand.values(), *position.eliminated.values()],
        "turn": [position.player - 1, position.phase.value - 1, ending, position.has_swapped],
        "candidate": [(position.candidate or 0) - 1, position.num_rounds],
        "legal": legal,
        "outcomes": np.float32(game.outcomes(position)),
    }


def assert_equal(found, ours, position):
    plain = facts_of_position(found, position)
    if position.phase is Phase.OVER:
        plain["candidate"] = ours["candidate"]  # of no use any more
    for name, value in plain.items():
        assert np.array_equal(ours[name], value), differences(name, ours[name], np.asarray(value), position)


def differences(name, ours, plain, position):
    places = np.argwhere(ours != plain)
    position = dataclasses.replace(position, board=position.board.name)  # its tables are long
    return f"{name}: ours {ours[ours != plain]}, plain {plain[ours != plain]} at {places.tolist()}; {position}"


def batched(states):
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)


def play_beside(found, states, positions, generator, most_plies, choose=None, watch=None):
    """(the last plain positions, all events of the games) of games that both play to their ends, by random actions.

    Asserts that they are equal at each decision. `choose(position, generator)` may choose instead, and
    `watch(index, before, action, after)` sees every step.
    """
    events, positions = [], list(positions)
    running = set(range(len(positions)))
    for _ in range(most_plies + 1):
        ours = facts_of_states(found, states)
        for index in running:
            assert_equal(found, ours[index], positions[index])
        running = {index for index in running if positions[index].phase is not Phase.OVER}
        if not running:
            return positions, events
        actions = np.zeros(len(positions), np.int32)
        for index in sorted(running):
            position = positions[index]
            options = game.legal(position)
            action = options[generator.integers(len(options))] if choose is None else choose(position, generator)
            actions[index] = index_of(found, position, action)
            positions[index] = game.play(position, action)
            events += positions[index].events
            if watch is not None:
                watch(index, position, action, positions[index])
        states = found.step(states, actions)
    raise AssertionError(f"games of more than {most_plies} decisions")


def play_random_games(board_name, num_players, num_games, seed, has_swap=False):
    found = compiled(board_name, num_players, has_swap)
    states = batched([found.init()] * num_games)
    positions = [game.start(board_name, num_players, swap=has_swap) for _ in range(num_games)]
    return play_beside(found, states, positions, np.random.default_rng(seed), most_plies=400)
