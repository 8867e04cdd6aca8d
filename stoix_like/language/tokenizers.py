"""Tokenizers: text to token ids, and back to bytes. The word tokenizer's vocabulary is a list of texts of our own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.types import Prompt

TURN_END = "<|im_end|>"  # of ChatML, as are the beginnings of turns in `templates`


class Tokenizer(NamedTuple):
    """A vocabulary.

    Attributes:
        token_bytes: what each token stands for, [V].
        encode: text -> token ids. Raises ConfigError for a text it cannot write.
        ends: ids that end a turn.
        prompt: Prompt -> token ids of all that stands before the first turn.
    """

    token_bytes: tuple[bytes, ...]
    encode: Callable[[str], list[int]]
    ends: tuple[int, ...]
    prompt: Callable[[Prompt], list[int]]

    @property
    def hash(self) -> np.ndarray:
        """[32] uint8, SHA-256 over the vocabulary. Models of different hashes do not speak of the same tokens."""
        digest = hashlib.sha256()
        for token in self.token_bytes:
            digest.update(len(token).to_bytes(4, "big") + token)
        return np.frombuffer(digest.digest(), np.uint8).copy()

    def to_text(self, tokens: Sequence[int] | np.ndarray) -> str:
        """The text of token ids. Bytes that are no UTF-8 become the replacement character."""
        return b"".join(self.token_bytes[int(token)] for token in tokens).decode("utf-8", "replace")


def word_tokenizer(words: Sequence[str], marks: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer whose tokens are whole texts; of several that fit, it takes the longest.

    Args:
        words: the vocabulary, `TURN_END` among them.
        marks: further words, of which prompts consist.

    Raises:
        ConfigError: a word that is empty or comes twice, or no `TURN_END`.
    """
    vocabulary = (*words, *marks)
    twice = sorted({word for word in vocabulary if vocabulary.count(word) > 1 or not word})
    if twice or TURN_END not in vocabulary:
        what = f"the word {twice[0]!r} is empty or comes twice" if twice else f"the word {TURN_END!r} is missing"
        raise ConfigError(f"word tokenizer: {what}", "give each word once, and the one that ends a turn")
    ids = {word: index for index, word in enumerate(vocabulary)}
    longest = max(map(len, vocabulary))

    def encode(text: str) -> list[int]:
        found, start = [], 0
        while start < len(text):
            ends = range(min(len(text), start + longest), start, -1)
            end = next((end for end in ends if text[start:end] in ids), None)
            if end is None:
                raise ConfigError(
                    f"word tokenizer: no word for {text[start : start + 20]!r}",
                    "add the texts of the world to its words",
                )
            found.append(ids[text[start:end]])
            start = end
        return found

    return Tokenizer(
        token_bytes=tuple(word.encode() for word in vocabulary),
        encode=encode,
        ends=(ids[TURN_END],),
        prompt=lambda prompt: [token for mark in prompt.marks for token in encode(mark)],
    )
