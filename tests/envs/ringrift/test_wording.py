"""What RingRift says to people: what is decided now, and why an action is not legal, in positions laid out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.ringrift.test_game import game_of

from stoix_like.envs.ringrift.state import make_rules


def nearly_won(game):
    """Player 1 has eliminated 17 rings of the 18 that win, and its stack at e5 can land on a marker at g5."""
    state = game.init()
    board = make_rules("hex8", 2).board
    e5, g5 = board.cell_at(4, 4), board.cell_at(6, 4)
    rings, markers = np.array(state.rings), np.array(state.markers)
    set_bit(rings[0, 0], board.bits[e5])
    set_bit(rings[1, 0], board.bits[e5])
    set_bit(rings[0, 1], board.bits[0])
    set_bit(markers[1], board.bits[g5])
    return state._replace(
        rings=jnp.asarray(rings),
        markers=jnp.asarray(markers),
        places=jnp.zeros_like(state.places),
        hand=jnp.array([0, 17], jnp.int8),
        eliminated=jnp.array([17, 0], jnp.int8),
        phase=jnp.int8(1),
        turn=jnp.int16(40),
    )


def set_bit(words, bit):
    words[bit // 32] |= np.uint32(1) << np.uint32(bit % 32)


def assert_told(game, state, reasons):
    """Of actions by name, none of which is legal."""
    names, legal = list(game.layout.action_names), np.asarray(game.legal_actions(state))
    for name, reason in reasons.items():
        assert not legal[names.index(name)], name
        assert game.wording.why_illegal(state, names.index(name)) == reason, name


def test_a_person_is_told_why_a_move_is_not_legal():
    game = game_of("hex8")
    state = jax.tree.map(np.asarray, nearly_won(game))
    reasons = {
        "place 1 a5": "a stack is moved now",
        "e5 to e6": "the stack at e5 has height 2 and must move at least 2",
        "a5 to b5": "no stack of the mover stands at a5",
        "e5 to e1": "a stack stands at e1",
        "skip": "there is something that must be done",
        "line d5 right": "a stack is moved now",
    }
    assert_told(game, state, reasons)
    said = game.wording.status(state, "XO")
    assert said.splitlines()[0] == "a stack is moved now"
    assert said.splitlines()[1] == "X: 0 in hand, 17 of 18 eliminated, 0 of 31 territory"


def without_a_stack(game):
    """Player 1 has markers at c5, a7, b7, c7 and d6, which completes a line at d7; player 2 has a stack on a ring of
    player 1 at e5, a marker at d5 and territory at c4."""
    state = nearly_won(game)
    board = make_rules("hex8", 2).board
    rings, markers, collapsed = np.zeros_like(state.rings), np.zeros_like(state.markers), np.array(state.collapsed)
    e5, d5, c4 = (board.bits[board.cell_at(*place)] for place in ((4, 4), (3, 4), (2, 3)))
    set_bit(rings[0, 1], e5)
    set_bit(rings[1, 0], e5)
    for place in ((2, 4), (0, 6), (1, 6), (2, 6), (3, 5)):
        set_bit(markers[0], board.bits[board.cell_at(*place)])
    set_bit(markers[1], d5)
    set_bit(collapsed[1], c4)
    return jax.tree.map(np.asarray, state)._replace(rings=rings, markers=markers, collapsed=collapsed)


def test_a_person_without_a_stack_is_told_of_recoveries():
    game = game_of("hex8")
    state = without_a_stack(game)
    reasons = {
        "place 1 a5": "a marker slides now, to recover a ring",
        "e5 to e6": "no marker of the mover lies at e5",
        "c5 to c7": "a marker slides to a cell beside it",
        "c5 to c4": "c4 is collapsed",
        "c5 to d5": "a marker lies at d5",
        "c5 to b5": "it completes no line there, and another slide does",
    }
    assert_told(game, state, reasons)
    assert game.wording.status(state, "XO").startswith("a marker slides now, to recover a ring\nX: 0 in hand")


@pytest.mark.parametrize(
    ("phase", "reason"),
    [(1, "must be moved: a ring was placed on it"), (2, "has moved, and may capture now"), (3, "must capture on")],
)
def test_a_person_is_told_which_stack_alone_may_act(phase, reason):
    game = game_of("hex8")
    state = jax.tree.map(np.asarray, nearly_won(game))
    focus = np.zeros_like(state.focus)
    board = make_rules("hex8", 2).board
    set_bit(focus, board.bits[board.cell_at(4, 4)])
    action = list(game.layout.action_names).index("a5 to b5")
    state = state._replace(focus=focus, phase=np.int8(phase))
    assert game.wording.why_illegal(state, action) == f"the stack at e5 {reason}"


def test_after_a_swap_the_players_stand_in_their_order():
    game = game_of("hex8_swap")
    state = jax.tree.map(np.asarray, game.init())._replace(is_swapped=np.bool_(True), hand=np.array([17, 18], np.int8))
    said = game.wording.status(state, "XO").splitlines()
    assert [line.partition(" in hand")[0] for line in said[1:]] == ["X: 18", "O: 17"]
