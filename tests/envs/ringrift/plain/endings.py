"""How a game ends, tested when a turn has ended, and how the players then rank."""

import math

from envs.ringrift.plain.placement import is_dead, placements_on
from envs.ringrift.plain.position import Phase, has_rings, num_markers


def end_if_won(position):
    """Ends the game if one of the conditions holds, tested in this order, the player's own first."""
    for ending, find_winner in (("rings", ring_winner), ("territory", territory_winner), ("only_owner", only_owner)):
        winner = find_winner(position)
        if winner is not None:
            return end(position, ending, winner)
    if is_stalemate(position):
        return end(position, "stalemate", stalemate_winner(position))
    return None


def end(position, ending, winner):
    position.ending, position.winner, position.phase = ending, winner, Phase.OVER
    position.events.append(f"ending_{ending}")


def from_player_on(position):
    """All players in order of seats, beginning with the one whose turn it is."""
    return [*range(position.player, position.num_players + 1), *range(1, position.player)]


def ring_winner(position):
    for player in from_player_on(position):
        if position.eliminated[player] >= position.ring_victory:
            return player
    return None


def territory_winner(position):
    """Who has enough territory, and more than all others together."""
    for player in position.players:
        own = position.territory[player]
        if own >= position.territory_victory and 2 * own > sum(position.territory.values()):
            return player
    return None


def only_owner(position):
    """Who controls every stack, while nobody else has a ring anywhere. Nobody if there is no stack."""
    owners = [player for player in position.players if has_rings(position, player)]
    return owners[0] if position.stacks and len(owners) == 1 else None


def is_stalemate(position):
    """Whether there is no stack, and no player can place a ring that could move."""
    return not position.stacks and not any(can_place(position, player) for player in position.players)


def can_place(position, player):
    return position.hand[player] > 0 and any(
        not is_dead(position, player, place)
        for cell in position.board.cells
        for place in placements_on(position, player, cell)
    )


def stalemate_winner(position):
    """The best by territory, rings eliminated or in hand, markers; of several the one whose turn ended, else none."""
    best = max(stalemate_key(position, player) for player in position.players)
    tied = [player for player in position.players if stalemate_key(position, player) == best]
    if len(tied) == 1:
        return tied[0]
    return position.player if position.player in tied else None


def stalemate_key(position, player):
    rings = position.eliminated[player] + position.hand[player]
    return position.territory[player], rings, num_markers(position, player)


def ranking_key(position, player):
    """What players rank by, the winner apart: the last is the turn of losing the last ring, infinite if not lost."""
    rings = position.eliminated[player] + (position.hand[player] if position.ending == "stalemate" else 0)
    lost = position.last_ring_turn.get(player, math.inf)
    return player == position.winner, position.territory[player], rings, num_markers(position, player), lost


def outcomes(position):
    """By player, 1 for the first place to -1 for the last in equal steps, tied places averaged; 0 until the end."""
    if position.phase is not Phase.OVER:
        return (0.0,) * position.num_players
    keys = [ranking_key(position, player) for player in position.players]
    return tuple(mean_value(keys, key) for key in keys)


def mean_value(keys, key):
    """The value of the places that the players with this key share."""
    first = sum(other > key for other in keys)
    last = first + keys.count(key) - 1
    return 1.0 - (first + last) / max(len(keys) - 1, 1)
