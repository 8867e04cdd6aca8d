"""Conversations as Python strings: how a turn is written, and how an answer is taken apart by a regular expression.

The host's counterpart of `language.templates` and `language.grammar`, for the mode "base" and the strict parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoix_like.bench.agents.python_lake import PythonLake
from stoix_like.envs.text.frozen_lake import MOVE_NAMES
from stoix_like.language.templates import ASSISTANT, THINK, USER, reminder
from stoix_like.language.tokenizers import TURN_END

_ANSWER = re.compile(r"<think>(.*?)</think>\s*<answer>(.*?)</answer>", re.DOTALL)
_ACTIONS = {name.lower(): action for action, name in enumerate(MOVE_NAMES)}


@dataclass
class Conversation:
    """An episode on the host."""

    lake: PythonLake
    texts: list[str] = field(default_factory=list)  # user, agent, user, ...
    num_tokens: int = 0  # that the agent chose
    reward: float = 0.0  # of the turn before
    was_cut: bool = False  # the answer before

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(self.texts)


#: (turn, conversations) -> the tokens of each answer; of a conversation that is over, none
Answers = Callable[[int, Sequence[Conversation]], list[list[int]]]
#: how a loop starts: -> `Answers` about new conversations
Begin = Callable[[], Answers]


def add_user_turn(conversation: Conversation, turn: int) -> None:
    """Writes a turn, counted from 0, up to the forced beginning of the answer."""
    lake = conversation.lake
    before = ""
    if turn > 0:
        end = TURN_END if conversation.was_cut else ""
        before = f"{end}{USER}Reward:\n{conversation.reward:.1f}\n\n"
    left = lake.max_actions - lake.num_actions
    state = f"Turn {turn + 1}:\nState:\n{lake.sentence()}"
    conversation.texts.append(f"{before}{state}You have {left}{reminder('base')}{ASSISTANT}{THINK}")


def add_answer(conversation: Conversation, text: str, actions_per_turn: int) -> None:
    """Writes an answer and takes its actions until the episode is over."""
    conversation.texts.append(text)
    conversation.was_cut = not text.endswith(TURN_END)
    conversation.reward = 0.0
    for action in parse(text, actions_per_turn):
        if not conversation.lake.is_over:
            conversation.reward += conversation.lake.step(action)


def parse(text: str, actions_per_turn: int) -> list[int]:
    """The actions of an answer after its forced beginning. Of its first segments, those that name none are left out."""
    found = _ANSWER.search(THINK + text)
    if found is None:
        return []
    segments = [segment.strip().lower() for segment in found[2].split("||")]
    segments = [segment for segment in segments if segment][:actions_per_turn]
    return [_ACTIONS[segment] for segment in segments if segment in _ACTIONS]
