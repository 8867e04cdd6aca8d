"""Texts as batches of tokens, and tokens as texts, on the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stoix_like.algorithms.agent.speaking import Answer, UserTurn
from stoix_like.bench.agents.conversations import Conversation
from stoix_like.language.tokenizers import Tokenizer


class Codec(NamedTuple):
    """Text to tokens and back.

    Attributes:
        encode: text -> token ids.
        decode: token ids -> text.
    """

    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]


def make_codec(tokenizer: Tokenizer) -> Codec:
    """The words of a word tokenizer in one regular expression, whose search is not Python's.

    The longest word comes first, so its tokens are those of `Tokenizer.encode`, which would take many times as long.
    """
    words = [token.decode() for token in tokenizer.token_bytes]
    ids = {word: index for index, word in enumerate(words)}
    find = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True)))).findall
    return Codec(
        encode=lambda text: [ids[word] for word in find(text)],
        decode=lambda tokens: "".join(words[token] for token in tokens),
    )


def new_texts(codec: Codec, conversations: Sequence[Conversation]) -> list[list[int]]:
    """The tokens of the last user turns; of conversations that are over, none."""
    return [[] if each.lake.is_over else codec.encode(each.texts[-1]) for each in conversations]


def padded(rows: Sequence[Sequence[int]], num_rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens [num_rows, width] int32, is_valid) of rows of tokens, each at the end of its slots."""
    tokens, is_valid = np.zeros((num_rows, width), np.int32), np.zeros((num_rows, width), bool)
    for index, row in enumerate(rows):
        if row:
            tokens[index, -len(row) :], is_valid[index, -len(row) :] = row, True
    return tokens, is_valid


def as_user_turn(turn: int, tokens: np.ndarray, is_valid: np.ndarray) -> UserTurn:
    """The turn of tokens [N, S], which rows without a token do not answer."""
    arrays: Any = (np.int32(turn), tokens, is_valid, is_valid.any(axis=1), None)
    return UserTurn(*arrays)


def rounded_up(number: int, step: int) -> int:
    """The least multiple of a step that is no less than a number."""
    return -(-number // step) * step


def answer_tokens(answer: Answer) -> list[list[int]]:
    """The tokens of each row."""
    tokens, is_valid = np.asarray(answer.tokens), np.asarray(answer.is_valid)
    return [row[valid].tolist() for row, valid in zip(tokens, is_valid, strict=True)]
