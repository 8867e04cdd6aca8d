"""Random positions of movers who control no stack, and may recover: generators as in `rare_positions`."""

import functools

from envs.ringrift.rare_positions import (
    Share,
    begun,
    clear,
    count_out,
    fence,
    random_cell,
    random_player,
    random_row,
    scatter,
)


def recovering(generator, position, lay=None):
    """A mover without a stack that has markers and buried rings; `lay` lays out more for it."""
    player = random_player(generator, position)
    others = [each for each in position.players if each != player]
    if generator.random() < 0.2:
        fence(generator, position)
    scatter(generator, position, Share(0.5, 0.5, 1.0), tops=others)
    if lay is not None:
        lay(generator, position, player, others)
    count_out(generator, position, 2 if generator.random() < 0.4 else 0)
    is_able = player in position.markers.values() and any(player in stack for stack in position.stacks.values())
    return begun(position, player) if is_able else None


def break_row(generator, position, player, others):
    """Lays a row of markers, of exact length or longer, that lacks one; another is beside the gap."""
    length, before, after = position.line_length, 0, 0
    shortest = length + (generator.random() < 0.85)
    while before + 1 + after < shortest:
        before, after = generator.integers(length, size=2).tolist()  # no line without the gap
    row = random_row(generator, position, before + 1 + after)
    gap = row[before]
    slider = random_cell(generator, [near for near in position.board.beside[gap] if near not in row])
    for cell in (*row, slider):
        clear(position, cell)
        position.markers[cell] = player
    clear(position, gap)


def bury_once(generator, position, player, others):
    """Leaves the mover one ring, below a single other one and beside a marker that can hardly go elsewhere."""
    for cell, stack in position.stacks.items():
        position.stacks[cell] = tuple(int(generator.choice(others)) if ring == player else ring for ring in stack)
    cell = random_cell(generator, position.board.cells)
    marked = random_cell(generator, position.board.beside[cell])
    for near in position.board.beside[marked]:
        if generator.random() < 0.7:
            clear(position, near)
            position.collapsed[near] = random_player(generator, position)
    for each in (cell, marked):
        clear(position, each)
    position.markers = {where: int(generator.choice(others)) for where in position.markers} | {marked: player}
    position.stacks[cell] = (player, int(generator.choice(others)))


almost_in_line = functools.partial(recovering, lay=break_row)
barely_buried = functools.partial(recovering, lay=bury_once)


def hemmed_in(generator, position):
    """A mover who alone can place, move or capture, and may recover instead: its only ring on the board is below one of
    another player, and nothing leads away from these two."""
    player, cell = random_player(generator, position), random_cell(generator, position.board.cells)
    other = int(generator.choice([each for each in position.players if each != player]))
    position.stacks[cell] = (player, other)
    for near in position.board.beside[cell]:
        position.collapsed[near] = random_player(generator, position)
    scatter(generator, position, Share(1.0, 2.5, 0.0))
    count_out(generator, position, 0)
    position.hand[player] = int(generator.integers(1, 4))
    return begun(position, player)
