"""The shared types of board games: a game as pure functions, its board as tables, and who plays it.

Players are numbered 0 to P - 1. Everything about results is per player, [P]: nothing here assumes two players, or that
they alternate. Axis letters beside those of `types`: P players here, C cells of a board, S symmetries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from stoix_like.types import Array, Key, Observation, Params

GameState = Any  # pytree of arrays


class Symmetries(NamedTuple):
    """Maps of the board onto itself that change neither rules nor outcomes, as tables on the host; row 0 is the
    identity. Symmetry s shows the planes `planes[cells[s]]` and the mask `action_mask[actions[s]]`, and what it shows
    has the policy `policy[actions[s]]` and the same values."""

    cells: np.ndarray  # [S, C] int32, the cell that moves to each place
    actions: np.ndarray  # [S, A] int32, the action that becomes each action
    unmapped: np.ndarray | None = None  # [A] bool, actions that only row 0 maps: a state with one is shown as it is


class Lines(NamedTuple):
    """The lines that win when one player owns all their cells, for the features of a network and for heuristics."""

    cells: np.ndarray  # [L, K] int32, the cells of each line
    below: np.ndarray | None  # [C] int32, the cell that must be taken before this one; -1: none. None: no gravity


class ActionPlaces(NamedTuple):
    """Where actions are on the board, for networks that score them by cell: tables on the host."""

    cells: np.ndarray  # [A] int32, where it begins; -1: nowhere
    planes: np.ndarray  # [A] int32, its kind at this cell; those without a cell have numbers of their own, from 0 on
    landings: np.ndarray  # [A] int32, the cell it leads to; -1: none


class BoardLayout(NamedTuple):
    """The board as tables on the host, for networks and drawings."""

    shape: tuple[int, int]  # rows, columns; cell = row * columns + column, if `coordinates` does not say otherwise
    kind: Literal["square", "hex"]  # hex: each row is drawn half a cell further right
    neighbors: np.ndarray  # [C, K] int32, adjacent cells in the same K directions everywhere; -1 off the board
    action_names: tuple[str, ...]  # [A], as a person writes them: "d4", "pass"; for connect four the column, "4"
    lines: Lines | None = None
    coordinates: np.ndarray | None = None  # [C, 2] int32, row and column of each cell, of a board with gaps
    action_places: ActionPlaces | None = None  # of games whose actions are many, and of few kinds
    num_shared_planes: int = 0  # the last planes, which are the same on all cells

    @property
    def num_cells(self) -> int:
        """C."""
        return self.shape[0] * self.shape[1] if self.coordinates is None else len(self.coordinates)

    @property
    def places(self) -> np.ndarray:
        """[C, 2] row and column of each cell."""
        if self.coordinates is not None:
            return self.coordinates
        return np.stack(np.divmod(np.arange(self.num_cells), self.shape[1]), axis=1)


class Picture(NamedTuple):
    """What is drawn of a position of a game of stacks, where an owner a cell is not enough."""

    rings: Array  # [C, H] int8, the owners of the rings of a stack from the lowest up; -1: none
    markers: Array  # [C] int8, owners; -1: none
    territory: Array  # [C] int8, whose a cell is for good; -1: nobody's


class Wording(NamedTuple):
    """How a game speaks to people; functions on the host of a state with NumPy leaves."""

    status: Callable[[GameState, Sequence[str]], str]  # what stands beside the board, by the names of the players
    why_illegal: Callable[[GameState, int], str]  # why an action is not legal here
    moves: Sequence[tuple[str, str]] = ()  # (an example, what it does) of each kind of move, where a cell is not enough
    holdings: Callable[[GameState], Sequence[str]] | None = None  # what each player has beside the board, [P]
    result: Callable[[GameState], str] | None = None  # of a game that is over: by what it was decided


class BoardGame(NamedTuple):
    """A board game as pure functions of one state, without batch axes: callers vmap.

    Attributes:
        name: such as `connect_four`.
        num_players: P.
        num_actions: A.
        max_plies: an upper bound of the number of actions in a game.
        init: () -> the state before the first move.
        step: (state, action) -> the state after a legal action of the player to move, of the same shapes and types. Of
            a state that is over, or an illegal action, the result means nothing.
        observe: state -> Observation(planes [C, channels] bool, action_mask [A] bool) from the view of the player to
            move: plane 0 has the mover's cells, plane 1 those of others, and the same position with the colours
            exchanged looks the same, as far as the rules allow.
        legal_actions: state -> [A] bool. Never all False while the game is not over.
        player: state -> [] int32, who is to move. The same player may be twice in a row.
        outcome: state -> [P] float32, 1 for a win, -1 for a loss, 0 for a draw and while it is not over; of several
            players anything between. The sum over players is 0.
        is_over: state -> [] bool.
        cells: state -> [C] int8, the owner of each cell, -1 where it is empty; for drawings and openings.
        preference: state -> [A] float32, the weighting of the heuristic player: higher is better.
        layout: of the board.
        symmetries: of the board.
        picture: state -> Picture, of games of stacks. Equal positions have equal pictures.
        random_action: (state, number [] uint32) -> [] int32, a legal action, each as likely for a random number; for
            games that know a faster way than by `legal_actions`. None: there is none.
        wording: what it says to people beyond its board.
        self_play_plies: plies after which self-play cuts a game unless it is told otherwise, where the bound is far
            above what games take. None: `max_plies`.
        max_legal: K, of games with many actions of which few are legal at a time: searches keep the first K legal
            actions of a position in place of all A. None: all A.
    """

    name: str
    num_players: int
    num_actions: int
    max_plies: int
    init: Callable[[], GameState]
    step: Callable[[GameState, Array], GameState]
    observe: Callable[[GameState], Observation]
    legal_actions: Callable[[GameState], Array]
    player: Callable[[GameState], Array]
    outcome: Callable[[GameState], Array]
    is_over: Callable[[GameState], Array]
    cells: Callable[[GameState], Array]
    preference: Callable[[GameState], Array]
    layout: BoardLayout
    symmetries: Symmetries
    picture: Callable[[GameState], Picture] | None = None
    random_action: Callable[[GameState, Array], Array] | None = None
    wording: Wording | None = None
    self_play_plies: int | None = None
    max_legal: int | None = None


class Player(Protocol):
    """(params, states [N, ...], key) -> legal actions [N] int32. Players without parameters ignore them."""

    def __call__(self, params: Params, states: GameState, key: Key, /) -> Array: ...
