"""Random positions that make rare rules frequent: one generator for each group of rules.

What games cannot reach is left out, as the package makes use of that: lines are only the mover's, and only where lines
are decided; nobody has won; no stack is higher than a game can build it.
"""

import functools
from typing import NamedTuple

from envs.ringrift.plain import endings, game, turn
from envs.ringrift.plain.lines import lines
from envs.ringrift.plain.position import Phase, has_rings, is_empty, make_position

HIGHEST = {"square8": 8, "hex8": 9}  # rings of a stack
NUM_TURNS = 20  # that have passed, so that players may have lost their rings before


class Share(NamedTuple):
    """How many of ten cells are what."""

    collapsed: float = 1.0
    markers: float = 1.5
    stacks: float = 1.5


USUAL = Share()


def drawn_positions(make, generator, board_name, num_players, count):
    """So many positions at a decision, of those that a generator draws."""
    found = []
    while len(found) < count:
        position = make(generator, make_position(board_name, num_players, num_turns=NUM_TURNS))
        if position is not None:
            found.append(position)
    return found


def begun(position, player, phase=Phase.PLACEMENT):
    """The position at its first decision in a player's turn, which is at a phase; None if no game can be there."""
    position.territory = {each: list(position.collapsed.values()).count(each) for each in position.players}
    if not is_possible(position, player, phase):
        return None
    if phase is Phase.PLACEMENT:
        turn.begin_turn(position, player)
    else:  # after a move
        position.player, position.phase, position.candidate, position.num_rounds = player, phase, player, 0
        position.is_changed = position.has_acted = position.has_decided = True
    after = game.settled(position)
    return None if after.phase is Phase.OVER else after


def is_possible(position, player, phase):
    """Whether a game could have come there, as far as the rules make use of it."""
    if endings.territory_winner(position) is not None or not has_rings(position, player):
        return False
    with_lines = [each for each in position.players if lines(position, each)]
    return with_lines == [] or (with_lines == [player] and phase is Phase.LINE)


def random_player(generator, position):
    return int(generator.integers(1, position.num_players + 1))


def random_cell(generator, cells):
    return cells[generator.integers(len(cells))]


def random_action(position, generator):
    """An option; half of the time a kind of action first, so that rare kinds are taken more often."""
    options = game.legal(position)
    if generator.random() < 0.5:
        kinds = list(dict.fromkeys(map(type, options)))
        kind = kinds[generator.integers(len(kinds))]
        options = [option for option in options if type(option) is kind]
    return options[generator.integers(len(options))]


def random_stack(generator, position, tallest, tops=None):
    """Rings from bottom to top, the top one of `tops`."""
    tallest = min(tallest, HIGHEST[position.board.name])
    below = generator.integers(1, position.num_players + 1, generator.integers(tallest)).tolist()
    return (*below, int(generator.choice(tops or position.players)))


def scatter(generator, position, share, tallest=3, tops=None):
    """Puts things on cells that are empty."""
    draws = generator.random(len(position.board.cells)) * 10
    for cell, draw in zip(position.board.cells, draws, strict=True):
        if not is_empty(position, cell):
            continue
        if draw < share.collapsed:
            position.collapsed[cell] = random_player(generator, position)
        elif draw < share.collapsed + share.markers:
            position.markers[cell] = random_player(generator, position)
        elif draw < share.collapsed + share.markers + share.stacks:
            position.stacks[cell] = random_stack(generator, position, tallest, tops)


def count_out(generator, position, most_in_hand, most_eliminated=6):
    """Gives each player rings in hand and eliminated ones, now and then one less than wins, and a candidate."""
    for player in position.players:
        position.hand[player] = int(generator.integers(most_in_hand + 1))
        position.eliminated[player] = int(generator.integers(most_eliminated + 1))
        if generator.random() < 0.1:
            position.eliminated[player] = position.ring_victory - 1
    for player in position.players:
        if not has_rings(position, player):
            position.last_ring_turn[player] = int(generator.integers(NUM_TURNS - 1, NUM_TURNS + 1))
    if generator.random() < 0.5:
        position.candidate, position.num_rounds = random_player(generator, position), int(generator.integers(3))


def anything(generator, position, share=USUAL, tallest=3, most_in_hand=3):
    """Turns that begin on a board where things are scattered."""
    scatter(generator, position, share, tallest)
    count_out(generator, position, most_in_hand)
    return begun(position, random_player(generator, position))


crowded = functools.partial(anything, share=Share(0.5, 3.0, 5.0), most_in_hand=0)  # captures and chains
blocked = functools.partial(anything, share=Share(6.5, 0.5, 1.0), tallest=6, most_in_hand=0)  # forced eliminations
closed = functools.partial(anything, share=Share(6.0, 1.0, 1.0), most_in_hand=2)  # dead placements


def lonely(generator, position):
    """The mover alone controls stacks, the others have buried rings or none: the last player standing."""
    player = random_player(generator, position)
    has_markers = generator.random() < 0.3
    scatter(generator, position, Share(1.0, 1.0 if has_markers else 0.0, 0.8), tops=[player])
    count_out(generator, position, 0, most_eliminated=1)
    position.candidate, position.num_rounds = player, int(generator.integers(2))
    return begun(position, player)


def thin(generator, position):
    """Few stacks: one owner, equal ranks."""
    scatter(generator, position, Share(0.3, 0.3, 0.5), tallest=2)
    count_out(generator, position, 0, most_eliminated=1)
    return begun(position, random_player(generator, position))


def at_lines(generator, position):
    """One or two lines of the mover, of all lengths; some movers control no stack."""
    player = random_player(generator, position)
    for _ in range(generator.integers(1, 3)):
        row = random_row(generator, position, position.line_length + int(generator.choice([0, 1, 1, 2])))
        position.markers.update(dict.fromkeys(row, player))
    others = [each for each in position.players if each != player]
    scatter(generator, position, Share(0.5, 1.0, 1.5), tops=others if generator.random() < 0.6 else None)
    count_out(generator, position, 2)
    return begun(position, player, Phase.LINE) if lines(position, player) else None


def random_row(generator, position, length):
    """So many cells in a row on an axis."""
    row = []
    while len(row) < length:
        cell = random_cell(generator, position.board.cells)
        row = [cell, *position.board.rays[cell][generator.integers(position.board.num_axes)]][:length]
    return row


def at_regions(generator, position):
    """One or two borders around a cell, of two colours or one, in the phase of territory or at the start of a turn."""
    fence(generator, position)
    scatter(generator, position, Share(0.3, 0.3, 1.5))
    count_out(generator, position, 2)
    phase = Phase.TERRITORY if generator.random() < 0.7 else Phase.PLACEMENT
    return begun(position, random_player(generator, position), phase)


def fence(generator, position):
    """Markers of one colour around a cell, and of another one further out, with gaps that are collapsed."""
    away = distances(position.board, random_cell(generator, position.board.cells))
    near = int(generator.integers(1, 3))
    for radius in (near, near + int(generator.integers(1, 3))):
        colour = random_player(generator, position)
        for cell in [cell for cell, steps in away.items() if steps == radius]:
            if generator.random() < 0.75:
                position.markers[cell] = colour
            else:
                position.collapsed[cell] = random_player(generator, position)


def distances(board, start):
    """How many sides of cells lie between `start` and each cell."""
    found, todo = {start: 0}, [start]
    for cell in todo:  # grows
        fresh = [near for near in board.sides[cell] if near not in found]
        found |= dict.fromkeys(fresh, found[cell] + 1)
        todo += fresh
    return found


def clear(position, cell):
    for things in (position.stacks, position.markers, position.collapsed):
        things.pop(cell, None)


def last_stack(generator, position):
    """A closed board with a single stack: when it is gone, all players compare, and are often equal.

    The stack cannot move, or only onto a marker, where it is lost.
    """
    board, player = position.board, random_player(generator, position)
    cell = random_cell(generator, board.cells)
    landings = [random_cell(generator, board.beside[cell])] if generator.random() < 0.5 else []
    height = 1 if landings else int(generator.integers(1, 4))
    position.stacks[cell] = (player,) * height
    position.markers.update(dict.fromkeys(landings, random_player(generator, position)))
    others = [other for other in board.cells if other != cell and other not in landings]
    generator.shuffle(others)
    others.sort(key=board.beside[cell].__contains__)  # those beside the stack are closed
    even = [each for each in position.players if each != player or not landings]  # who moves leaves another
    is_even = generator.random() < 0.5
    markers = even if is_even else [random_player(generator, position) for _ in even]
    position.markers.update(zip(others, markers, strict=False))
    closed = others[len(markers) + (len(others) - len(markers)) % position.num_players :]
    position.collapsed = {other: index % position.num_players + 1 for index, other in enumerate(closed)}
    if generator.random() < 0.2:
        position.collapsed[random_cell(generator, closed)] = player
    even_out(generator, position, player, height, most_in_hand=0 if landings else 4)
    return begun(position, player)


def even_out(generator, position, player, height, most_in_hand):
    """Gives each player in all as many rings eliminated or in hand as the mover when its stack is gone, or nearly."""
    special = player if generator.random() < 0.3 else random_player(generator, position)
    more = int(generator.choice([-1, -1, 0, 0, 1]))
    for each in position.players:
        position.hand[each] = int(generator.integers(most_in_hand + 1))
        total = 8 + more * (each == special)
        position.eliminated[each] = total - position.hand[each] - height * (each == player)
        if not has_rings(position, each):
            position.last_ring_turn[each] = int(generator.integers(NUM_TURNS - 1, NUM_TURNS + 1))
