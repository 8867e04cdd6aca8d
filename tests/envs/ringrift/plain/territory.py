"""Regions cut off by markers of one colour: found, claimed, paid for."""

from envs.ringrift.plain import payments
from envs.ringrift.plain.actions import Region, Skip
from envs.ringrift.plain.position import Phase, collapse, players_on_board

NO_COLOUR = 0


def territory_options(position):
    """The regions the player may claim, by colour of the border and lowest cell; they may be declined."""
    found = [region for region in regions(position) if is_claimable(position, region)]
    return [*found, Skip()] if found else []


def regions(position):
    """Components between collapsed cells and markers of one colour, each once.

    A component that no marker of the colour touches is the same without the colour, and is listed so.
    """
    return [
        Region(colour, cells)
        for colour in (NO_COLOUR, *position.players)
        if colour == NO_COLOUR or colour in position.markers.values()
        for cells in components(position, colour)
        if colour == NO_COLOUR or border(position, colour, cells)
    ]


def components(position, colour):
    """Connected sets of cells that are neither collapsed nor markers of `colour`, by lowest cell."""
    open_cells = [
        cell
        for cell in position.board.cells
        if cell not in position.collapsed and (colour == NO_COLOUR or position.markers.get(cell) != colour)
    ]
    left = set(open_cells)
    found = []
    for cell in open_cells:
        if cell in left:
            found.append(component(position.board, cell, left))
            left -= found[-1]
    return found


def component(board, start, cells):
    """The cells of `cells` connected with `start` by territory."""
    found, todo = {start}, [start]
    while todo:
        for near in board.sides[todo.pop()]:
            if near in cells and near not in found:
                found.add(near)
                todo.append(near)
    return frozenset(found)


def border(position, colour, cells):
    """All markers of `colour` that touch the region."""
    near = {side for cell in cells for side in position.board.sides[cell]}
    return {cell for cell in near - cells if position.markers.get(cell) == colour}


def is_claimable(position, region):
    """Whether somebody with a ring on the board controls nothing inside, and the player can pay from outside."""
    inside = {position.stacks[cell][-1] for cell in region.cells if cell in position.stacks}
    return inside < players_on_board(position) and can_pay(position, region)


def can_pay(position, region):
    return any(cell not in region.cells for cell in payments.territory_payers(position))


def claim(position, action):
    """Region and border become territory, the rings inside are eliminated; a payment follows."""
    position.events += claim_events(position, action)
    take(position, action)
    position.is_changed = True
    position.phase = Phase.TERRITORY_PAYMENT


def take(position, region):
    """The effects of a claim without its payment."""
    for cell in region.cells | border(position, region.colour, region.cells):
        position.eliminated[position.player] += len(position.stacks.pop(cell, ()))
        collapse(position, cell, position.player)


def claim_events(position, region):
    events = ["region_none" if region.colour == NO_COLOUR else "region_coloured"]
    if not any(cell in position.stacks for cell in region.cells):
        events.append("region_empty")
    if position.is_recovering:
        events.append("region_recovery")
    return events


def skip_territory(position):
    position.events.append("territory_skip")
    position.phase = Phase.FORCED_ELIMINATION
