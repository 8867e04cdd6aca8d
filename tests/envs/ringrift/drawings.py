"""Positions from drawings: a row of words for each row of the board, from the top (lowest y) and the left (lowest x).

`.` is an empty cell, `m1` a marker of player 1, `c1` a cell of player 1's territory, `12` a stack with player 2 on top
of player 1. What a drawing leaves out at the end of a row or below is empty. Nobody has rings in hand unless told so.
"""

from envs.ringrift.plain.game import settled
from envs.ringrift.plain.position import Phase, make_position


def drawn(board_name, num_players, drawing, phase=Phase.MOVEMENT, **fields):
    """The position at its first decision from `phase` on."""
    everyone = range(1, num_players + 1)
    empty = make_position(board_name, num_players, phase=phase)
    words = placed_words(empty.board.cells, drawing)
    markers = {cell: int(word[1]) for cell, word in words.items() if word[0] == "m"}
    collapsed = {cell: int(word[1]) for cell, word in words.items() if word[0] == "c"}
    usual = {
        "hand": dict.fromkeys(everyone, 0),
        "territory": {player: list(collapsed.values()).count(player) for player in everyone},
        "is_changed": phase not in (Phase.PLACEMENT, Phase.MOVEMENT),
        "stacks": {cell: tuple(map(int, word)) for cell, word in words.items() if word.isdigit()},
        "markers": markers,
        "collapsed": collapsed,
    }
    return settled(make_position(board_name, num_players, phase=phase, **(usual | fields)))


def placed_words(cells, drawing):
    """The words by cell, without the empty ones."""
    rows = {}
    for cell in cells:
        rows.setdefault(cell[1], []).append(cell)
    lines = [line.split() for line in drawing.strip("\n").split("\n")]
    pairs = [pair for row, words in zip(rows.values(), lines, strict=False) for pair in zip(row, words, strict=False)]
    return {cell: word for cell, word in pairs if word != "."}
