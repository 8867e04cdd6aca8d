"""The rules of RingRift as plain functions over positions: slow, readable, and written without the package.

position = start("hex8", 2)
while position.phase is not Phase.OVER:
    position = play(position, random.choice(legal(position)))
outcomes(position)
"""

from envs.ringrift.plain import captures, lines, movement, payments, placement, recovery, territory, turn
from envs.ringrift.plain.actions import Line, Move, Pay, Place, Region, Segment, Skip, Slide, Strike, Swap
from envs.ringrift.plain.endings import outcomes
from envs.ringrift.plain.position import Phase, copied, make_position

__all__ = ["legal", "outcomes", "play", "settled", "start"]


def start(board_name, num_players, swap=False):
    position = make_position(board_name, num_players, swap_enabled=swap)
    turn.begin_turn(position, 1)
    turn.advance(position)
    return position


def settled(position):
    """A position that was put together by hand, gone on to its first decision."""
    position = copied(position)
    turn.advance(position)
    return position


def legal(position):
    """The legal actions, in an order that depends on the position alone; none when the game is over."""
    return list(position.options)


def play(position, action):
    """The position at the next decision, or at the end. Its `events` name the rules met on the way."""
    if action not in position.options:
        raise ValueError(f"{action} is not legal in {position.phase}")
    after = copied(position)
    if after.phase is Phase.PLACEMENT and after.player == 2:
        after.swap_offered = True
    after.has_decided = True
    EFFECTS[type(action)](after, action)
    turn.advance(after)
    return after


def move_or_capture(position, action):
    effect = captures.capture if captures.is_capture(position, action) else movement.move
    effect(position, action)


def pay(position, action):
    PAYMENTS[position.phase](position, action)


def skip(position, action):
    SKIPS[position.phase](position)


EFFECTS = {
    Place: placement.place,
    Move: move_or_capture,
    Slide: recovery.slide,
    Strike: recovery.strike,
    Line: lines.collapse_line,
    Segment: lines.collapse_segment,
    Region: territory.claim,
    Pay: pay,
    Skip: skip,
    Swap: placement.swap,
}

PAYMENTS = {
    Phase.LINE_PAYMENT: payments.pay_for_line,
    Phase.TERRITORY_PAYMENT: payments.pay_for_territory,
    Phase.FORCED_ELIMINATION: payments.eliminate_forced,
}

SKIPS = {
    Phase.PLACEMENT: placement.skip_placement,
    Phase.MOVEMENT: recovery.skip_recovery,
    Phase.CAPTURE: captures.skip_capture,
    Phase.TERRITORY: territory.skip_territory,
}
