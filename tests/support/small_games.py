"""Board games given by tables, small enough to be searched exhaustively, and the oracles that do so in plain Python.

Every table holds a trap that no legal play reaches: stepping a state that is over, or an illegal action, leads there.
It is not over, its first player is to move, and it leads to wins of everybody: whoever counts it is seen at once.
"""

import functools
import itertools
import random
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from stoix_like.games import BoardGame, BoardLayout, Symmetries
from stoix_like.types import Observation

TRAP = 0


class Table(NamedTuple):
    """Positions of one or more games for the same number of players. Position 0 is the trap."""

    next: np.ndarray  # [S, A] int32
    legal: np.ndarray  # [S, A] bool
    player: np.ndarray  # [S] int32
    is_over: np.ndarray  # [S] bool
    outcome: np.ndarray  # [S, P] float32


class Tables:
    """A table that grows by games: each is a nested tuple."""

    def __init__(self, num_players, num_actions):
        self.shape = (num_players, num_actions)
        trap = (0, dict.fromkeys(range(num_actions), TRAP + 1), [0.0] * num_players)
        self.rows = [trap, (0, None, [100.0] * num_players)]

    def _add(self, player, children, outcome):
        self.rows.append((player, children, outcome))
        return len(self.rows) - 1

    def node(self, player, *children):
        """A position of `player`: action a leads to children[a], or is illegal where that is None."""
        known = {action: child for action, child in enumerate(children) if child is not None}
        return self._add(player, known, [0.0] * self.shape[0])

    def end(self, *outcome, player=0):
        """The end of a game. `player` would be to move."""
        assert abs(sum(outcome)) < 1e-9
        return self._add(player, None, list(outcome))

    def build(self):
        num_actions = self.shape[1]
        table = Table(
            np.full((len(self.rows), num_actions), TRAP, np.int32),
            np.zeros((len(self.rows), num_actions), bool),
            np.array([row[0] for row in self.rows], np.int32),
            np.array([row[1] is None for row in self.rows]),
            np.array([row[2] for row in self.rows], np.float32),
        )
        for index, (_, children, _) in enumerate(self.rows):
            for action, child in (children or {}).items():
                table.next[index, action] = child
                table.legal[index, action] = True
        return table


def make_table_game(table, max_plies=8):
    """The table as a BoardGame, whose state is an index []. Its observation shows the index."""
    num_positions, num_actions = table.next.shape
    num_players = table.outcome.shape[1]
    next_, legal, player, is_over, outcome = (jnp.asarray(field) for field in table)
    nothing = np.zeros((1, 1), np.int32)
    return BoardGame(
        name="table",
        num_players=num_players,
        num_actions=num_actions,
        max_plies=max_plies,
        init=lambda: jnp.int32(num_positions - 1),
        step=lambda state, action: next_[state, action],
        observe=lambda state: Observation(state[None], legal[state]),
        legal_actions=lambda state: legal[state],
        player=lambda state: player[state],
        outcome=lambda state: outcome[state],
        is_over=lambda state: is_over[state],
        cells=lambda state: jnp.full((1,), -1, jnp.int8),
        preference=lambda state: jnp.zeros((num_actions,), jnp.float32),
        layout=BoardLayout((1, 1), "square", np.full((1, 1), -1, np.int32), tuple(map(str, range(num_actions)))),
        symmetries=Symmetries(nothing, np.arange(num_actions, dtype=np.int32)[None]),
    )


def add_nim(tables, heap):
    """The root of Nim with one heap, of which a player takes 1 or 2 (3 where the table has so many actions) in turn;
    who takes the last one wins. Its theory: whoever finds a multiple of the most plus 1 loses."""
    most = tables.shape[1]

    @functools.cache
    def position(left, player):
        if left == 0:
            return tables.end(*((-1.0, 1.0) if player == 0 else (1.0, -1.0)), player=player)
        return tables.node(player, *(position(left - k, 1 - player) if k <= left else None for k in range(1, most + 1)))

    return position(heap, 0)


def add_kingmaker(tables):
    """The root of a game of three players and two moves: action 0 is best (0.6) if all maximise their own outcome,
    action 1 (0.0 against -0.5) if the others are all against player 0, as a paranoid search expects."""
    left = tables.node(1, tables.end(0.6, 0.4, -1.0), tables.end(-0.5, -0.5, 1.0), None)
    right = tables.node(1, None, tables.end(0.0, -0.4, 0.4), tables.end(0.2, 0.3, -0.5))
    return tables.node(0, left, right, None)


def add_double_move(tables):
    """The root of a game that only player 0's moving twice in a row wins, by action 1 and then action 1: were the
    second position its opponent's, the opponent would choose action 0 there."""
    won, lost = tables.end(1.0, -1.0, player=1), tables.end(-1.0, 1.0, player=0)
    reply = tables.node(1, lost, won, None)
    return tables.node(0, reply, tables.node(0, lost, won, None), tables.node(1, reply, lost, None))


@functools.cache
def two_players():
    """(table, game, roots): double moves, Nim, random trees with outcomes of -1, 0 and 1."""
    tables = Tables(2, 3)
    roots = [add_double_move(tables), *(add_nim(tables, heap) for heap in (5, 6, 7, 8))]
    roots += [add_random(tables, seed, 4, grid=True) for seed in range(11)]
    table = tables.build()
    return table, make_table_game(table), np.array(roots)


@functools.cache
def three_players():
    """(table, game, roots): the kingmaker, random trees with any outcomes."""
    tables = Tables(3, 3)
    roots = [add_kingmaker(tables), *(add_random(tables, seed, 4) for seed in range(15))]
    table = tables.build()
    return table, make_table_game(table), np.array(roots)


def add_random(tables, seed, depth, *, grid=False):
    """The root of a random tree: any player may be next, some actions are illegal, some games end early.

    With `grid` two players win, lose or draw; else all outcomes differ.
    """
    draw = random.Random(seed)
    num_players, num_actions = tables.shape

    def outcome():
        if num_players == 2:
            own = draw.choice([-1.0, 0.0, 1.0]) if grid else draw.uniform(-1, 1)
            return own, -own
        raw = [draw.uniform(-1, 1) for _ in range(num_players)]
        return tuple(x - sum(raw) / num_players for x in raw)

    def grow(left):
        if left == 0 or (left < depth and draw.random() < 0.15):
            return tables.end(*outcome(), player=draw.randrange(num_players))
        legal = draw.sample(range(num_actions), draw.randint(1 if left < depth else 2, num_actions))
        children = [grow(left - 1) if action in legal else None for action in range(num_actions)]
        return tables.node(draw.randrange(num_players), *children)

    return grow(depth)


def regrets(table, roots, actions, actions_of):
    """[B]: what each action loses against the best one of its root, by the oracle `actions_of`."""
    values = [actions_of(table, root) for root in roots]
    return np.array([max(v.values()) - v[int(a)] for v, a in zip(values, actions, strict=True)])


def children_of(table, position):
    """{action: position} of the legal actions."""
    return {a: int(table.next[position, a]) for a in np.flatnonzero(table.legal[position])}


def maxn_value(table, position):
    """[P]: the outcome if every player maximises its own."""
    if table.is_over[position]:
        return table.outcome[position]
    values = [maxn_value(table, child) for child in children_of(table, position).values()]
    return max(values, key=lambda value: value[table.player[position]])


def maxn_actions(table, position):
    """{action: its max^n value} for the player to move."""
    player = int(table.player[position])
    return {a: maxn_value(table, child)[player] for a, child in children_of(table, position).items()}


TIC_TAC_TOE_LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def tic_tac_toe_winner(board):
    """0, 1 or None, of a string of nine characters `0`, `1` and `.`."""
    for a, b, c in TIC_TAC_TOE_LINES:
        if board[a] != "." and board[a] == board[b] == board[c]:
            return int(board[a])
    return None


def tic_tac_toe_mover(board):
    return 0 if board.count("0") == board.count("1") else 1


@functools.cache
def tic_tac_toe_value(board):
    """1, 0 or -1 for the player to move, by minimax."""
    if tic_tac_toe_winner(board) is not None:
        return -1
    if "." not in board:
        return 0
    return max(tic_tac_toe_actions(board).values())


def tic_tac_toe_actions(board):
    """{action: its minimax value for the player to move}."""
    mover = str(tic_tac_toe_mover(board))
    free = [cell for cell in range(9) if board[cell] == "."]
    return {cell: -tic_tac_toe_value(board[:cell] + mover + board[cell + 1 :]) for cell in free}


@functools.cache
def tic_tac_toe_positions():
    """Every reachable board that is not over, as strings, sorted."""
    found, frontier = set(), {"." * 9}
    while frontier:
        found |= frontier
        boards = [
            board[:cell] + str(tic_tac_toe_mover(board)) + board[cell + 1 :]
            for board, cell in itertools.product(frontier, range(9))
            if board[cell] == "."
        ]
        frontier = {board for board in boards if tic_tac_toe_winner(board) is None and "." in board}
    return sorted(found)


def tic_tac_toe_states(boards):
    """The states [B] of the package's game for boards as strings."""
    from stoix_like.envs.boards.tic_tac_toe import TicTacToeState

    cells = np.array([[-1 if cell == "." else int(cell) for cell in board] for board in boards], np.int8)
    winners = [tic_tac_toe_winner(board) for board in boards]
    return TicTacToeState(
        jnp.asarray(cells),
        jnp.asarray([tic_tac_toe_mover(board) for board in boards], jnp.int8),
        jnp.asarray([-1 if winner is None else winner for winner in winners], jnp.int8),
    )
