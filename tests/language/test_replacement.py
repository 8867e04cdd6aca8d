"""States in answers are replaced, by hand and against regular expressions with random divisions into tokens."""

import itertools
import random
import re

import pytest

from stoix_like.language.replacement import replace_states

WORDS = [
    b"<observation>",
    b" P _",
    b"</observation>",
    b"go ",
    b"<prediction>",
    b"</prediction>",
    b"</think>",
    b" O",
    b"x</",
]
OBSERVATION, PREDICTION = [1, 7], [7, 7, 1]


@pytest.mark.parametrize(
    ("tokens", "expected", "counts"),
    [
        ([0, 7, 2, 3, 4, 1, 5, 6], [0, *OBSERVATION, 2, 3, 4, *PREDICTION, 5, 6], (1, 1)),
        ([0, 2, 4, 5], [0, *OBSERVATION, 2, 4, *PREDICTION, 5], (1, 1)),  # nothing was written between the tags
        ([0, 7, 2, 0, 1, 1, 2], [0, *OBSERVATION, 2, 0, *OBSERVATION, 2], (2, 0)),
        ([0, 7, 3, 6], [0, 7, 3, 6], (0, 0)),  # not closed
        ([0, 7, 4, 1, 2, 5], [0, *OBSERVATION, 2, 5], (1, 0)),  # a tag inside of another part
        ([3, 6], [3, 6], (0, 0)),
        ([], [], (0, 0)),
    ],
)
def test_by_hand(tokens, expected, counts):
    found = replace_states(WORDS, tokens, OBSERVATION, PREDICTION)
    assert found == (expected, counts, True)


def test_a_token_across_the_border_of_a_tag_leaves_the_answer_as_it_was():
    words = [*WORDS[:8], b"x</obs", b"ervation>"]
    found = replace_states(words, [0, 1, 8, 9, 4, 1, 5], OBSERVATION, PREDICTION)
    assert found == ([0, 1, 8, 9, 4, 1, 5], (0, 0), False)


def test_any_text_in_any_division_is_that_of_two_expressions():
    """What the release's expressions make of the text is what the tokens say, unless they cannot be divided."""
    draw = random.Random(0)
    pieces = ["<observation>", "</observation>", "<prediction>", "</prediction>", "P_", "\n", "<", "</", "think>", "é"]
    num_divisible = 0
    for _ in range(400):
        drawn = [draw.choice(pieces).encode() for _ in range(draw.randint(0, 12))]
        text, ends = b"".join(drawn), list(itertools.accumulate(map(len, drawn)))
        cuts = {0, len(text), *(draw.randint(0, len(text)) for _ in range(draw.randint(0, 30)))}
        cuts = sorted(cuts | set(ends if draw.random() < 0.5 else []))  # every other text is cut at all its tags
        words = [text[a:b] for a, b in itertools.pairwise(cuts)] + [b"[o]", b"[p]", b"."]
        num = len(words)
        found = replace_states(words, range(num - 3), [num - 3, num - 1], [num - 2])
        wanted = re.sub(rb"(?s)<observation>.*?</observation>", b"<observation>[o].</observation>", text)
        wanted = re.sub(rb"(?s)<prediction>.*?</prediction>", b"<prediction>[p]</prediction>", wanted)
        written = b"".join(words[token] for token in found.tokens)
        assert written == (wanted if found.is_divisible else text)
        num_divisible += found.is_divisible and wanted != text
    assert num_divisible > 30
