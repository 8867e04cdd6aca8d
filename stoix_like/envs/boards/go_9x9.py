"""Go on 9 x 9 points with 7.5 points of komi. Actions are the points, row by row from the top left, then the pass.

Rules as in pgx's `go_9x9`: area scoring without removing dead stones; no suicide; the simple ko is illegal; who repeats
an earlier position otherwise loses at once (positional superko); two passes or 162 plies end the game. The state keeps
which chains have one liberty, because both the next move and its legality ask for it: found by one minimum over the
liberties of each chain, where pgx compares all pairs of points, which is what its time goes into.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards import tables
from stoix_like.games import BoardGame, BoardLayout
from stoix_like.types import Array, Observation

SIZE, NUM_CELLS, PASS, KOMI, MAX_PLIES, HISTORY = 9, 81, 81, 7.5, 162, 8
NEIGHBORS = tables.square_neighbors(SIZE, SIZE)  # [81, 8]
_SIDES, _CORNERS = NEIGHBORS[:, [1, 3, 4, 6]], NEIGHBORS[:, [0, 2, 5, 7]]  # each [81, 4]
_NAMES = np.arange(1, NUM_CELLS + 1, dtype=np.int8)  # of the chain that a new black stone begins
_HASHES = np.random.default_rng(9).integers(2**32, size=(2, NUM_CELLS, 2), dtype=np.uint32)  # black, white; 64 bits
_IS_BESIDE = np.zeros((NUM_CELLS, NUM_CELLS), np.float32)  # 1 where two points are neighbours
_IS_BESIDE[np.repeat(np.arange(NUM_CELLS), 4)[_SIDES.reshape(-1) >= 0], _SIDES[_SIDES >= 0]] = 1.0
_OUTSIDE = np.int8(127)  # no chain has this number
_PASS_WORTH = -1000.0


def _lines_off() -> np.ndarray:
    """How far each point is from the third line of the board. [81]."""
    row, column = np.divmod(np.arange(NUM_CELLS), SIZE)
    line = np.minimum(np.minimum(row, SIZE - 1 - row), np.minimum(column, SIZE - 1 - column))
    return abs(line - 2).astype(np.float32)


_LINES_OFF = _lines_off()


class GoState(NamedTuple):
    """A position and those before it."""

    chains: Array  # [81] int8, 0: empty; the same number for connected stones: above 0 black, below 0 white
    is_in_atari: Array  # [81] bool, stones of chains with a single liberty
    history: Array  # [8, 81] int8, the last positions, the latest first: 1 black, -1 white
    hashes: Array  # [162, 2] uint32, of the positions after each ply
    num_plies: Array  # [] int16
    num_passes: Array  # [] int8, passes since the last stone
    ko: Array  # [] int8, the point where a stone would retake a ko; -1: none
    is_repeated: Array  # [] bool: the last stone repeated a position


def make_go_9x9() -> BoardGame:
    """Go, with the rules and the planes of pgx's `go_9x9`."""
    return BoardGame(
        name="go_9x9",
        num_players=2,
        num_actions=NUM_CELLS + 1,
        max_plies=MAX_PLIES,
        init=_init,
        step=_step,
        observe=_observe,
        legal_actions=_legal_actions,
        player=_player,
        outcome=_outcome,
        is_over=_is_over,
        cells=lambda state: jnp.where(state.chains > 0, 0, jnp.where(state.chains < 0, 1, -1)).astype(jnp.int8),
        preference=_preference,
        layout=BoardLayout((SIZE, SIZE), "square", NEIGHBORS, tables.cell_names(SIZE, SIZE, "pass")),
        symmetries=tables.square_symmetries(SIZE, num_other_actions=1),
    )


def _init() -> GoState:
    return GoState(
        chains=jnp.zeros((NUM_CELLS,), jnp.int8),
        is_in_atari=jnp.zeros((NUM_CELLS,), bool),
        history=jnp.zeros((HISTORY, NUM_CELLS), jnp.int8),
        hashes=jnp.zeros((MAX_PLIES, 2), jnp.uint32),
        num_plies=jnp.int16(0),
        num_passes=jnp.int8(0),
        ko=jnp.int8(-1),
        is_repeated=jnp.bool_(False),
    )


def _player(state: GoState) -> Array:
    return state.num_plies.astype(jnp.int32) % 2


def _sign(state: GoState) -> Array:
    """1 if black is to move, -1 if white is. [] int8."""
    return (1 - 2 * (state.num_plies % 2)).astype(jnp.int8)


def _step(state: GoState, action: Array) -> GoState:
    is_pass = action == PASS
    chains, ko = _with_stone(state, jnp.minimum(action, NUM_CELLS - 1))
    chains = jnp.where(is_pass, state.chains, chains)
    stones = jnp.sign(chains)
    hashed = _hash(stones)
    return GoState(
        chains=chains,
        is_in_atari=_in_atari(chains),
        history=jnp.concatenate([stones[None], state.history[:-1]]),
        hashes=state.hashes.at[state.num_plies].set(hashed),
        num_plies=state.num_plies + jnp.int16(1),
        num_passes=jnp.where(is_pass, state.num_passes + jnp.int8(1), jnp.int8(0)),
        ko=jnp.where(is_pass, jnp.int8(-1), ko),
        # The empty board, which unused rows would equal, is never left after a stone.
        is_repeated=~is_pass & jnp.any(jnp.all(state.hashes == hashed[None], axis=1)),
    )


def _with_stone(state: GoState, cell: Array) -> tuple[Array, Array]:
    """The chains [81] after a stone on `cell`, and the point [] where retaking it is a ko."""
    sign = _sign(state)
    sides = jnp.asarray(_SIDES)[cell]  # [4]
    beside = jnp.where(sides >= 0, state.chains[sides], jnp.int8(0))  # [4]
    is_other = beside * sign < 0
    is_taken_beside = is_other & state.is_in_atari[sides]
    is_taken, is_joined = jnp.zeros((NUM_CELLS,), bool), jnp.arange(NUM_CELLS) == cell
    for side in range(4):
        is_same = state.chains == beside[side]  # [81]
        is_taken |= is_same & is_taken_beside[side]
        is_joined |= is_same & (beside[side] * sign > 0)
    chains = jnp.where(is_taken, jnp.int8(0), jnp.where(is_joined, sign * (cell + 1).astype(jnp.int8), state.chains))
    is_ko = jnp.all(is_other | (sides < 0)) & (jnp.sum(is_taken) == 1)
    return chains, jnp.where(is_ko, jnp.argmax(is_taken), -1).astype(jnp.int8)


def _beside(values: Array, outside: Array) -> list[Array]:
    """The `values` [81] of the four points beside each, four times [81]; `outside` off the board."""
    wide = jnp.pad(values.reshape(SIZE, SIZE), 1, constant_values=outside)  # [11, 11]
    sides = (wide[:-2, 1:-1], wide[2:, 1:-1], wide[1:-1, :-2], wide[1:-1, 2:])
    return [side.reshape(NUM_CELLS) for side in sides]


def _in_atari(chains: Array) -> Array:
    """Stones of chains with a single liberty: their lowest is their highest. [81] bool."""
    free = jnp.where(chains == 0, _NAMES, jnp.int8(0))  # [81], the name of each free point
    sides = jnp.stack(_beside(free, jnp.int8(0)))  # [4, 81]
    highest = jnp.max(sides, axis=0)
    lowest = jnp.min(jnp.where(sides > 0, sides, _OUTSIDE), axis=0)
    chain = jnp.abs(chains).astype(jnp.int32)  # [81]
    ends = jnp.stack([lowest, -highest], axis=-1)  # [81, 2]
    of_chain = jnp.full((NUM_CELLS + 1, 2), _OUTSIDE).at[chain].min(ends)[chain]  # [81, 2]
    return (chains != 0) & (of_chain[:, 0] == -of_chain[:, 1])


def _hash(stones: Array) -> Array:
    """64 bits of a position [81], as [2] uint32: Zobrist's exclusive or of a number for each stone."""
    black, white = _HASHES  # each [81, 2]
    numbers = jnp.where((stones > 0)[:, None], black, jnp.where((stones < 0)[:, None], white, np.uint32(0)))
    return jnp.bitwise_xor.reduce(numbers, axis=0)


def _legal_actions(state: GoState) -> Array:
    own = state.chains * _sign(state)  # [81], above 0: of the player to move
    # Beside a free point, another's chain in atari can be taken, and an own one that is not has a second liberty.
    is_open = (own == 0) | ((own < 0) == state.is_in_atari)
    cells = (own == 0) & jnp.any(jnp.stack(_beside(is_open, jnp.bool_(False))), axis=0)
    return jnp.append(cells & (jnp.arange(NUM_CELLS) != state.ko), True)


def _observe(state: GoState) -> Observation:
    """Planes: own and the other's stones in each of the last eight positions, and whether white is to move."""
    seen = state.history * _sign(state)  # [8, 81]
    stones = jnp.stack([seen > 0, seen < 0], axis=1).reshape(2 * HISTORY, NUM_CELLS)
    is_white = jnp.broadcast_to(_player(state) == 1, (1, NUM_CELLS))
    return Observation(jnp.concatenate([stones, is_white]).T, _legal_actions(state))


def _is_over(state: GoState) -> Array:
    return (state.num_passes >= 2) | state.is_repeated | (state.num_plies >= MAX_PLIES)


def _outcome(state: GoState) -> Array:
    is_over = _is_over(state)
    black, white = _areas(state.chains, is_over)
    winner = jnp.where(state.is_repeated, _player(state), jnp.where(black - KOMI > white, 0, 1))
    return jnp.where(is_over, jnp.where(jnp.arange(2) == winner, 1.0, -1.0), 0.0).astype(jnp.float32)


def _areas(chains: Array, is_wanted: Array) -> Array:
    """Stones, and free points that no path of free points connects with the other player's stones. [2] int32."""
    is_free = chains == 0  # [81]
    others = jnp.stack([chains < 0, chains > 0])  # [2, 81]

    def spread(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        reached, _ = carry
        beside = jax.vmap(lambda one: jnp.any(jnp.stack(_beside(one, jnp.bool_(False))), axis=0))(reached)
        after = reached | (beside & is_free[None])
        return after, jnp.any(after != reached)

    reached, _ = jax.lax.while_loop(lambda carry: carry[1], spread, (others, is_wanted))
    return jnp.sum(~reached, axis=1)


def _preference(state: GoState) -> Array:
    """Taking stones (10 and 1 a stone), saving own ones from it (8), threatening to take (3), else the third line (-1 a
    line off), and not into danger (-6); a pass comes last, but before the filling of an own eye. Frozen: ratings are
    anchored on it."""
    sign = (1 - 2 * _player(state)).astype(jnp.int8)
    chains = state.chains * sign  # [81], above 0 own
    is_same = (chains[:, None] == chains[None, :]) & (chains != 0)[:, None]  # [81, 81]
    touches = (is_same.astype(jnp.float32) @ _IS_BESIDE) > 0  # [81, 81], by stone, the points beside its chain
    num_liberties = jnp.sum(touches & (chains == 0)[None, :], axis=1)  # [81]
    size = jnp.sum(is_same, axis=1)  # [81]

    beside = jnp.where(_SIDES >= 0, chains[_SIDES], _OUTSIDE)  # [81, 4]
    is_own, is_other = (beside > 0) & (beside != _OUTSIDE), beside < 0
    liberties = num_liberties[_SIDES]  # [81, 4]
    taken = jnp.max(jnp.where(is_other & (liberties == 1), 10 + size[_SIDES], 0), axis=1)  # [81]
    saved = jnp.any(is_own & (liberties == 1), axis=1) & jnp.any((beside == 0) | (is_own & (liberties > 2)), axis=1)
    threatened = jnp.any(is_other & (liberties == 2), axis=1)
    is_safe = (jnp.sum(beside == 0, axis=1) >= 2) | jnp.any(is_own & (liberties > 2), axis=1) | (taken > 0)
    worth = taken + 8.0 * saved + 3.0 * threatened - 6.0 * ~is_safe - _LINES_OFF
    return jnp.append(jnp.where(_is_own_eye(chains, is_own), 2 * _PASS_WORTH, worth), _PASS_WORTH).astype(jnp.float32)


def _is_own_eye(chains: Array, is_own: Array) -> Array:
    """Points that only own stones surround, so that the other's stones at the corners cannot make it false. [81]."""
    num_corners = jnp.sum(jnp.where(_CORNERS >= 0, chains[_CORNERS] < 0, False), axis=1)
    is_at_edge = jnp.any(_SIDES < 0, axis=1)
    return jnp.all(is_own | (_SIDES < 0), axis=1) & (num_corners + is_at_edge <= 1)
