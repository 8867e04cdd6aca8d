"""The course of a turn: what each phase offers, what follows a phase that offers nothing, and whose turn comes next."""

from envs.ringrift.plain import captures, endings, lines, payments, placement, recovery, territory
from envs.ringrift.plain.movement import can_any_move, movers, plain_moves
from envs.ringrift.plain.position import Phase, controls_any, has_rings


def movement_options(position):
    """Plain moves and captures of each stack that may move; without any stack, recoveries."""
    if not controls_any(position, position.player):
        return recovery.recovery_options(position)
    return [
        option
        for cell in movers(position)
        for option in (*plain_moves(position, cell), *captures.captures(position, cell))
    ]


OPTIONS = {
    Phase.PLACEMENT: placement.placement_options,
    Phase.MOVEMENT: movement_options,
    Phase.CAPTURE: captures.capture_options,
    Phase.CHAIN: captures.chain_options,
    Phase.LINE: lines.line_options,
    Phase.LINE_PAYMENT: payments.line_payment_options,
    Phase.TERRITORY: territory.territory_options,
    Phase.TERRITORY_PAYMENT: payments.territory_payment_options,
    Phase.FORCED_ELIMINATION: payments.forced_elimination_options,
}

#: What follows a phase without options. After the last one the turn ends.
FOLLOWING = {
    Phase.PLACEMENT: Phase.MOVEMENT,
    Phase.MOVEMENT: Phase.LINE,
    Phase.CAPTURE: Phase.LINE,
    Phase.CHAIN: Phase.LINE,
    Phase.LINE: Phase.TERRITORY,
    Phase.LINE_PAYMENT: Phase.LINE,
    Phase.TERRITORY: Phase.FORCED_ELIMINATION,
    Phase.TERRITORY_PAYMENT: Phase.TERRITORY,
}


def advance(position):
    """Goes on to the next decision, whose options it notes, or to the end of the game."""
    while position.phase is not Phase.OVER:
        position.options = OPTIONS[position.phase](position)
        if position.options:
            return
        if position.phase is Phase.LINE_PAYMENT:
            position.events.append("line_payment_waived")
        if position.phase is Phase.FORCED_ELIMINATION:
            end_turn(position)
        else:
            position.phase = FOLLOWING[position.phase]


def end_turn(position):
    """Counts the turn, ends the game if it is won, or else begins the turn of the next player with a ring."""
    position.num_turns += 1
    if not position.has_decided:
        position.events.append("passed_seat")
    for player in position.players:
        if not has_rings(position, player):
            position.last_ring_turn.setdefault(player, position.num_turns)
    if position.candidate == position.player and not position.has_acted:
        position.candidate, position.num_rounds = None, 0
    endings.end_if_won(position)
    if position.phase is not Phase.OVER:
        begin_turn(position, next_player(position))


def next_player(position):
    """The next in order of seats with a ring in hand or on the board, buried ones included."""
    order = endings.from_player_on(position)
    return next(player for player in (*order[1:], order[0]) if has_rings(position, player))


def begin_turn(position, player):
    """The first phase of a player's turn, or the end of the game if the player is the last one standing."""
    position.player, position.phase = player, Phase.PLACEMENT
    position.must_move = position.chain_cell = None
    position.is_changed = position.has_acted = position.is_recovering = position.has_decided = False
    count_round(position)
    if position.num_rounds == ROUNDS_OF_LAST_PLAYER:
        endings.end(position, "last_player", player)


ROUNDS_OF_LAST_PLAYER = 3


def count_round(position):
    """A player who can place, move or capture becomes the candidate, or as the candidate has stood one more round."""
    is_candidate = position.candidate == position.player
    if can_act(position):
        position.num_rounds = position.num_rounds + 1 if is_candidate else 0
        position.candidate = position.player
    elif is_candidate:
        position.candidate, position.num_rounds = None, 0


def can_act(position):
    return can_any_move(position, position.player) or endings.can_place(position, position.player)
