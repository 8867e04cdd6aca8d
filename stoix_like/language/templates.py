"""What stands around a state in a turn, as pieces of text: whose turn it is, the reward, the budget, the format.

Turns have ChatML's form. A user turn, with what only later turns of a conversation have in brackets:

    [<|im_end|>\\n<|im_start|>user\\nReward:\\n-0.1\\n\\n]Turn 2:\\nState:\\n...You have 9 actions left. ...
    <|im_end|>\\n<|im_start|>assistant\\n<think>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp

from stoix_like.language.tokenizers import TURN_END
from stoix_like.types import Array

#: How an answer of the mode "worldmodel" is ordered: observation, prediction and the actions.
Order = Literal["obs_pred_answer", "obs_answer_pred", "answer_obs_pred"]
ORDERS: tuple[Order, ...] = get_args(Order)

THINK, THOUGHT, ANSWER, ANSWERED = "<think>", "</think>", "<answer>", "</answer>"
OBSERVATION, OBSERVED, PREDICTION, PREDICTED = "<observation>", "</observation>", "<prediction>", "</prediction>"
SEPARATOR = " || "
TAGS = (OBSERVATION, OBSERVED, PREDICTION, PREDICTED, THOUGHT, ANSWER, ANSWERED, SEPARATOR, TURN_END)  # of answers
BEFORE_STATE, AFTER_STATE = ":\nState:\n", "You have "  # pieces around the state of a turn
USER, ASSISTANT = "\n<|im_start|>user\n", f"{TURN_END}\n<|im_start|>assistant\n"
DIGITS = tuple(str(digit) for digit in range(10))


class Parts(NamedTuple):
    """The texts of an answer of the mode "worldmodel"."""

    observation: str
    plan: str
    prediction: str
    answer: str


_OF_REMINDER = Parts("the state", "your thoughts", "the state after your actions", "your actions")


def whole_answer(order: Order, parts: Parts) -> str:
    """An answer of the mode "worldmodel", with its plan before the first of prediction and actions."""
    texts = {
        "obs": f"{OBSERVATION}{parts.observation}{OBSERVED}",
        "pred": f"{PREDICTION}{parts.prediction}{PREDICTED}",
        "answer": f"{THOUGHT}{ANSWER}{parts.answer}{ANSWERED}",
    }
    ordered = [texts[name] for name in order.split("_")]
    ordered.insert(1 if order.startswith("obs") else 0, parts.plan)
    return THINK + "".join(ordered)


def reminder(mode: str, order: Order = "obs_pred_answer") -> str:
    """What a turn says at its end of the form of an answer."""
    form = f"{THINK}your thoughts{THOUGHT}{ANSWER}your actions{ANSWERED}"
    if mode == "worldmodel":
        form = whole_answer(order, _OF_REMINDER)
    return f" actions left. Reply with {form} and nothing else."


def turn_texts(mode: str, order: Order = "obs_pred_answer") -> tuple[str, ...]:
    """The pieces of turns, in the order of `_Piece`."""
    around = (TURN_END, USER, "Reward:\n", "-", ".", "\n\n", "Turn ", BEFORE_STATE, AFTER_STATE)
    return (*DIGITS, *around, reminder(mode, order), ASSISTANT, THINK)


class _Piece(NamedTuple):
    """Indices into `turn_texts`, after the digits."""

    turn_end: int = 10
    user: int = 11
    reward: int = 12
    minus: int = 13
    point: int = 14
    after_reward: int = 15
    turn: int = 16
    state: int = 17
    budget: int = 18
    reminder: int = 19
    assistant: int = 20
    think: int = 21


_PIECE = _Piece()


class TurnFacts(NamedTuple):
    """What a user turn tells beside the state. [N], but for the turn."""

    turn: Array  # [] int32, from 0
    reward: Array  # float32 of the turn before
    was_cut: Array  # bool: the answer before did not end by itself
    num_actions_left: Array  # int32, below 100


def most_tokens(lengths: Sequence[int], *, is_conversation: bool) -> int:
    """The most tokens of a turn without its state, from those of each of `turn_texts`."""
    digit = max(lengths[: len(DIGITS)])
    once = [_PIECE.turn, _PIECE.state, _PIECE.budget, _PIECE.reminder, _PIECE.assistant, _PIECE.think]
    num_digits = 4  # of the turn and of the actions that are left
    if is_conversation:
        once += [_PIECE.turn_end, _PIECE.user, _PIECE.reward, _PIECE.minus, _PIECE.point, _PIECE.after_reward]
        num_digits += 3
    return sum(lengths[piece] for piece in once) + num_digits * digit


def before_state(facts: TurnFacts, *, is_conversation: bool) -> Array:
    """[N, ...] int32 pieces. Without a conversation every turn is the first that is seen."""
    number = jnp.broadcast_to(facts.turn + 1, facts.reward.shape)
    pieces = [jnp.full_like(number, _PIECE.turn), *_whole(number), jnp.full_like(number, _PIECE.state)]
    if is_conversation:
        pieces = [*_reward(facts), *pieces]
    return jnp.stack(pieces, axis=1).astype(jnp.int32)


def _reward(facts: TurnFacts) -> list[Array]:
    """The end of the answer before, if it was cut, and its reward; of the first turn, nothing."""
    follows = jnp.broadcast_to(facts.turn > 0, facts.reward.shape)
    around = [jnp.asarray(piece) for piece in (_PIECE.user, _PIECE.reward, _PIECE.after_reward)]
    pieces = [*around[:2], *_decimal(facts.reward), around[2]]
    end = jnp.where(follows & facts.was_cut, _PIECE.turn_end, -1)
    return [end, *(jnp.where(follows, piece, -1) for piece in pieces)]


def after_state(facts: TurnFacts) -> Array:
    """[N, 6] int32 pieces."""
    left = facts.num_actions_left
    pieces = [_PIECE.budget, *_whole(left), _PIECE.reminder, _PIECE.assistant, _PIECE.think]
    return jnp.stack([jnp.broadcast_to(jnp.asarray(piece), left.shape) for piece in pieces], axis=1).astype(jnp.int32)


def _whole(number: Array) -> list[Array]:
    """The digits of numbers below 100: tens, if there are any, and ones."""
    return [jnp.where(number >= 10, number // 10 % 10, -1), number % 10]


def _decimal(number: Array) -> list[Array]:
    """Pieces of numbers below 100 with one decimal: sign, tens, ones, point, tenths."""
    tenths = jnp.round(jnp.abs(number) * 10.0).astype(jnp.int32)
    sign = jnp.where((number < 0) & (tenths > 0), _PIECE.minus, -1)
    return [sign, *_whole(tenths // 10), jnp.full_like(tenths, _PIECE.point), tenths % 10]
