"""Answers in which the states that were written are replaced by others: the data of fine-tuning on a world.

On the host. All but the states stays as it was sampled, token by token.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from stoix_like.language.templates import OBSERVATION, OBSERVED, PREDICTED, PREDICTION

_PARTS = tuple(
    re.compile(re.escape(begin.encode()) + b"(.*?)" + re.escape(end.encode()), re.DOTALL)
    for begin, end in ((OBSERVATION, OBSERVED), (PREDICTION, PREDICTED))
)


class Replaced(NamedTuple):
    """An answer with other states."""

    tokens: list[int]
    num_replaced: tuple[int, int]  # observations and predictions that were closed
    is_divisible: bool  # False if a token holds a part of a tag and of a state: the answer is then left as it was


def replace_states(
    token_bytes: Sequence[bytes], tokens: Sequence[int], observation: Sequence[int], prediction: Sequence[int]
) -> Replaced:
    """The answer with `observation` between the tags of every observation, and `prediction` likewise.

    What is not closed stays, as by the two expressions of SPA's release (arXiv 2510.15047,
    `convert_to_sft_format_add_worldmodel` in generate_sft_data.py).

    Args:
        token_bytes: of the vocabulary.
        tokens: of an answer, after its forced beginning.
        observation, prediction: tokens of the states.
    """
    found, counts = list(tokens), []
    for part, state in zip(_PARTS, (observation, prediction), strict=True):
        places = _places(token_bytes, found, part)
        if places is None:
            return Replaced(list(tokens), (0, 0), is_divisible=False)
        for begin, end in reversed(places):
            found[begin:end] = state
        counts.append(len(places))
    return Replaced(found, (counts[0], counts[1]), is_divisible=True)


def _places(
    token_bytes: Sequence[bytes], tokens: Sequence[int], part: re.Pattern[bytes]
) -> list[tuple[int, int]] | None:
    """The runs of tokens between tags; None if one does not begin and end with a token."""
    texts = [token_bytes[token] for token in tokens]
    begins = {begin: index for index, begin in enumerate(itertools.accumulate(map(len, texts), initial=0))}
    spans = [match.span(1) for match in part.finditer(b"".join(texts))]
    if not all(place in begins for span in spans for place in span):
        return None
    return [(begins[begin], begins[end]) for begin, end in spans]
