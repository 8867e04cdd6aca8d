"""Loops of agents on the host, in three ways of public trainers, to measure ours beside.

Worlds, texts, tokens and parsing are Python; the decoder is the one of ours, compiled, with the same keys. So all write
the same episodes, and what differs is who is called how often, and what is read again. The three ways:

re_prefill: each turn reads the whole conversation again, tokenised again, as RAGEN and verl do.
keeps_cache: each turn reads its new text alone, and is one call.
loop_per_token: the same with one call for each token, as lmpo does.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from stoix_like.algorithms.agent.slots import Slots
from stoix_like.algorithms.agent.speaking import Answer, Speaker, UserTurn, model_speaker
from stoix_like.bench.agents import per_token
from stoix_like.bench.agents.batching import (
    Codec,
    answer_tokens,
    as_user_turn,
    make_codec,
    new_texts,
    padded,
    rounded_up,
)
from stoix_like.bench.agents.conversations import Answers, Begin, Conversation, add_answer, add_user_turn
from stoix_like.bench.agents.policies import Case, lakes_of, member_keys
from stoix_like.bench.agents.python_lake import PythonLake
from stoix_like.language.dialogue import Lexicon
from stoix_like.types import Array, Key, NetworkParams

TOKENS, ROWS = 64, 32  # the sizes of what is read again are multiples of them, so that few shapes are compiled


def make_loops(case: Case) -> dict[str, Callable[[], list[Conversation]]]:
    """{way: a function that plays the episodes of a case}."""
    codec, keys = make_codec(case.tokenizer), member_keys(case)
    begins: dict[str, Begin] = {
        "re_prefill": _re_prefill(case, codec, keys),
        "keeps_cache": _keeps_cache(case, codec, keys),
        "loop_per_token": per_token.make_begin(case, codec, keys),
    }
    lakes = lakes_of(case)
    return {name: functools.partial(_play, case, codec, lakes, begin) for name, begin in begins.items()}


def _play(case: Case, codec: Codec, lakes: Sequence[PythonLake], begin: Begin) -> list[Conversation]:
    """The conversations about all lakes, turn by turn."""
    rules = case.agent.rules
    conversations = [Conversation(dataclasses.replace(lake)) for lake in lakes]
    answers = begin()
    for turn in range(rules.slots.turns):
        open_ones = [conversation for conversation in conversations if not conversation.lake.is_over]
        if not open_ones:
            break
        for conversation in open_ones:
            add_user_turn(conversation, turn)
        for conversation, tokens in zip(conversations, answers(turn, conversations), strict=True):
            if not conversation.lake.is_over:
                conversation.num_tokens += len(tokens)
                add_answer(conversation, codec.decode(tokens), rules.actions_per_turn)
    return conversations


def _re_prefill(case: Case, codec: Codec, keys: Key) -> Begin:
    """Answers of a model that remembers nothing, and only of conversations that go on."""

    @jax.jit
    def ask(
        lexicon: Lexicon, params: NetworkParams, keys: Key, rows: Array, turn: Array, user_turn: UserTurn
    ) -> Answer:
        """The answers to whole conversations, each of which is one turn."""
        num_rows, width = user_turn.tokens.shape
        of_rules = case.agent.rules.slots
        slots = Slots(of_rules.prompt, turns=1, state=width, answer=of_rules.answer, is_conversation=False)
        speaker = _speaker(case, lexicon, params, slots)
        turn_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys[rows], turn)
        return speaker.answer(speaker.begin(num_rows), user_turn, turn_keys)[0]

    def answers(turn: int, conversations: Sequence[Conversation]) -> list[list[int]]:
        rows = [index for index, conversation in enumerate(conversations) if not conversation.lake.is_over]
        encoded = [codec.encode(conversations[row].text) for row in rows]
        num_rows = min(rounded_up(len(rows), ROWS), len(conversations))
        tokens, is_valid = padded(encoded, num_rows, rounded_up(max(map(len, encoded)), TOKENS))
        user_turn = as_user_turn(0, tokens, is_valid)
        of_keys: Any = np.array(rows + [0] * (num_rows - len(rows)), np.int32)
        answer = ask(case.lexicon, case.params, keys, of_keys, np.int32(turn), user_turn)
        found = dict(zip(rows, answer_tokens(answer), strict=False))
        return [found.get(index, []) for index in range(len(conversations))]

    return lambda: answers


def _keeps_cache(case: Case, codec: Codec, keys: Key) -> Begin:
    """Answers of a model that remembers the turns before."""
    slots, num_rows = case.agent.rules.slots, keys.shape[0]

    @jax.jit
    def begin_memory(lexicon: Lexicon, params: NetworkParams) -> Any:
        return _speaker(case, lexicon, params, slots).begin(num_rows)

    @functools.partial(jax.jit, donate_argnums=0)
    def ask(memory: Any, lexicon: Lexicon, params: NetworkParams, keys: Key, user_turn: UserTurn) -> tuple[Answer, Any]:
        turn_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, user_turn.turn)
        return _speaker(case, lexicon, params, slots).answer(memory, user_turn, turn_keys)

    def begin() -> Answers:
        memory = begin_memory(case.lexicon, case.params)

        def answers(turn: int, conversations: Sequence[Conversation]) -> list[list[int]]:
            nonlocal memory
            tokens, is_valid = padded(new_texts(codec, conversations), num_rows, slots.state)
            user_turn = as_user_turn(turn, tokens, is_valid)
            answer, memory = ask(memory, case.lexicon, case.params, keys, user_turn)
            return answer_tokens(answer)

        return answers

    return begin


def _speaker(case: Case, lexicon: Lexicon, params: NetworkParams, slots: Slots) -> Speaker:
    agent = case.agent
    return model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, slots, agent.temperature)
