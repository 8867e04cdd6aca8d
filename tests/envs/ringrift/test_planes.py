"""What a network sees of RingRift: every plane, told once more from positions of the plain rules."""

import itertools

import jax
import numpy as np
import pytest
from envs.ringrift import rare_positions, rare_recoveries
from envs.ringrift.against_plain import batched, compiled
from envs.ringrift.plain import game
from envs.ringrift.plain.actions import Skip
from envs.ringrift.plain.endings import from_player_on
from envs.ringrift.plain.position import Phase, cap_height
from envs.ringrift.rare_positions import HIGHEST, drawn_positions, random_action
from envs.ringrift.states_from_plain import focus_of, from_plain

from stoix_like.envs.boards.ringrift import make_ringrift
from stoix_like.envs.ringrift.planes import num_planes

FEW = [("hex8", 2), ("square8", 3), ("hex8", 4)]
GAMES = list(itertools.product(("hex8", "square8"), (2, 3, 4)))
IN_HAND, SIXTHS = (1, 2, 3, 6, 10, 14), range(1, 7)
#: Positions that random games seldom come to.
MAKERS = (
    rare_positions.crowded,
    rare_positions.blocked,
    rare_positions.lonely,
    rare_positions.at_lines,
    rare_positions.at_regions,
    rare_recoveries.recovering,
)
FREQUENT_HEIGHT = 4  # of stacks; higher ones are seldom


def shown_on_cells(position):
    """[(name, [C] bools)] of what lies on cells, in the order of the planes."""
    cells, seats = position.board.cells, from_player_on(position)
    caps = [cap_height(position.stacks[cell]) if cell in position.stacks else 0 for cell in cells]
    stacks = [position.stacks.get(cell, ())[::-1] for cell in cells]  # from the top
    counts = range(2, HIGHEST[position.board.name] + 1)
    return [
        ("own stack", [stack[:1] == (position.player,) for stack in stacks]),
        ("other stack", [stack[:1] not in ((), (position.player,)) for stack in stacks]),
        *(
            ((level, "level of seat", nth), [stack[level - 1 : level] == (seat,) for stack in stacks])
            for level in (1, *counts)
            for nth, seat in enumerate(seats)
        ),
        *(((count, "rings"), [len(stack) >= count for stack in stacks]) for count in counts),
        *(((count, "rings of a cap"), [cap >= count for cap in caps]) for count in counts),
        *((("marker", nth), [position.markers.get(cell) == seat for cell in cells]) for nth, seat in enumerate(seats)),
        *((("ours", nth), [position.collapsed.get(cell) == seat for cell in cells]) for nth, seat in enumerate(seats)),
        ("focus", [cell == focus_of(position) for cell in cells]),
    ]


def shown_everywhere(position):
    """[(name, bool)] of what belongs to no cell, in the order of the planes."""
    seats, has_candidate = from_player_on(position), position.candidate is not None
    rings, territory = position.eliminated, position.territory
    return [
        *((("hand", nth, count), position.hand[seat] >= count) for nth, seat in enumerate(seats) for count in IN_HAND),
        *(
            ((name, nth, sixth), 6 * counts[seat] >= sixth * wins)
            for name, counts, wins in (
                ("eliminated", rings, position.ring_victory),
                ("territory", territory, position.territory_victory),
            )
            for nth, seat in enumerate(seats)
            for sixth in SIXTHS
        ),
        *((("candidate", nth), position.candidate == seat) for nth, seat in enumerate(seats)),
        *((("rounds", count), has_candidate and position.num_rounds >= count) for count in (1, 2)),
        ("changed", position.is_changed),
        ("recovering", position.is_recovering),
        ("may skip", Skip() in game.legal(position)),
        *((phase.name, position.phase is phase) for phase in Phase if phase is not Phase.OVER),
    ]


def planes_of(position):
    """(names, planes [C, channels])."""
    on_cells, everywhere = shown_on_cells(position), shown_everywhere(position)
    columns = np.array([column for _, column in on_cells])
    numbers = np.broadcast_to([number for _, number in everywhere], (columns.shape[1], len(everywhere)))
    return [name for name, _ in (*on_cells, *everywhere)], np.concatenate([columns.T, numbers], axis=1)


def positions_of(board_name, num_players, num_games, generator):
    """All positions of random games, the last included, and of games from rare positions the first ones."""
    starts = [(game.start(board_name, num_players), 400)] * num_games
    for make in MAKERS:
        starts += [(each, 4) for each in drawn_positions(make, generator, board_name, num_players, 6 * num_games)]
    for start, most_plies in starts:
        yield from played_from(start, most_plies, generator)


def played_from(position, most_plies, generator):
    """The position and those that follow it by random actions."""
    yield position
    for _ in range(most_plies):
        if position.phase is Phase.OVER:
            return
        position = game.play(position, random_action(position, generator))
        yield position


def assert_planes_are_as_told(board_name, num_players, num_games):
    found, ringrift = compiled(board_name, num_players), make_ringrift(board_name, num_players)
    positions = list(positions_of(board_name, num_players, num_games, np.random.default_rng(0)))
    states = batched([from_plain(found, position) for position in positions])
    shown = np.asarray(jax.jit(jax.vmap(lambda state: ringrift.observe(state).agent_view))(states))
    names, _ = planes_of(positions[0])
    assert shown.shape[2] == len(names) == num_planes(found.rules)
    told = np.stack([planes_of(position)[1] for position in positions])
    differ = (shown != told).any(axis=1)  # [N, channels]
    assert [(names[plane], positions[index]) for index, plane in np.argwhere(differ)[:1]] == []
    never = ~told.any(axis=(0, 1)) | told.all(axis=(0, 1))
    assert {names[plane] for plane in np.flatnonzero(never) if not is_seldom(names[plane])} == set()


def is_seldom(name):
    """Whether a plane tells of a high stack, or that somebody else than the mover has what wins."""
    match name:
        case (int(level), _) | (int(level), _, _):
            return level > FREQUENT_HEIGHT
        case ("eliminated" | "territory", nth, 6):
            return nth > 0
    return False


@pytest.mark.parametrize(("board_name", "num_players"), FEW)
def test_planes_show_the_position_from_the_view_of_the_mover(board_name, num_players):
    assert_planes_are_as_told(board_name, num_players, num_games=3)


@pytest.mark.full
@pytest.mark.parametrize(("board_name", "num_players"), GAMES)
def test_planes_show_the_positions_of_many_games(board_name, num_players):
    assert_planes_are_as_told(board_name, num_players, num_games=20)
