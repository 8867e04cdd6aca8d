"""The parts of an answer: tags, states, answer, thoughts, however they are divided into tokens."""

import itertools
import random

import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.language import spans
from stoix_like.language.spans import COUNTED, SPANS, is_counted, make_spans, spans_of

BYTES = tuple(bytes([byte]) for byte in range(128))
#: What an answer consists of after the forced `<think>`, and the span of each part.
PARTS = [
    ("<observation>", "tags"),
    ("P is at (0,1) .", "observation"),
    ("</observation>", "tags"),
    ("hm", "thoughts"),
    ("<prediction>", "tags"),
    ("P _ >", "prediction"),
    ("</prediction>", "tags"),
    ("</think>", "tags"),
    ("<answer>", "tags"),
    ("Up || Left", "answer"),
    ("</answer>", "tags"),
    ("<|im_end|>", "tags"),
]


def named(table, tokens):
    row = jnp.array([tokens])
    return [SPANS[span] for span in np.asarray(spans_of(table, row, jnp.ones(row.shape, bool)))[0]]


def test_words_have_the_span_of_their_part():
    words = [text.encode() for text, _ in PARTS]
    assert named(make_spans(words), list(range(len(words)))) == [span for _, span in PARTS]


def test_bytes_have_the_span_of_their_part():
    text = "".join(text for text, _ in PARTS)
    wanted = [span for text, span in PARTS for _ in text]
    assert named(make_spans(BYTES), list(text.encode())) == wanted


def test_any_division_into_tokens_gives_a_token_the_span_of_its_bytes():
    """A token with a byte of a tag is of the tag."""
    draw = random.Random(0)
    text = "".join(text for text, _ in PARTS).encode()
    of_byte = [span for text, span in PARTS for _ in text]
    for _ in range(50):
        cuts = [0, *sorted(draw.sample(range(1, len(text)), draw.randint(1, 40))), len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
        wanted = []
        for a, b in itertools.pairwise(cuts):
            found = set(of_byte[a:b])
            assert len(found) == 1 or "tags" in found
            wanted.append("tags" if "tags" in found else found.pop())
        vocabulary = sorted(set(pieces))
        assert named(make_spans(vocabulary), [vocabulary.index(piece) for piece in pieces]) == wanted


def test_a_tag_that_is_not_awaited_is_text():
    text = "a</answer>b<observation><answer>c"
    found = named(make_spans(BYTES), list(text.encode()))
    assert set(found[: text.index("b") + 1]) <= {"thoughts", "tags"}
    assert found[-1] == "observation"  # an answer does not begin within an observation


def test_what_is_not_written_has_no_span():
    table = make_spans([b"<answer>", b"Up"])
    found = spans_of(table, jnp.array([[0, 1, 1], [1, 0, 0]]), jnp.array([[True, True, False], [True, False, False]]))
    np.testing.assert_array_equal(found, [[spans.TAG, spans.IN_ANSWER, -1], [spans.THOUGHTS, -1, -1]])
    assert not bool(is_counted(found, "assistant")[0, 2])


@pytest.mark.parametrize(
    ("mask", "counted"),
    [
        ("assistant", {"thoughts", "observation", "prediction", "answer", "tags"}),
        ("state_only", {"observation", "prediction"}),
        ("non_state", {"thoughts", "answer", "tags"}),
        ("answer_only", {"answer"}),
    ],
)
def test_the_masks_on_a_sequence_made_by_hand(mask, counted):
    table = make_spans([text.encode() for text, _ in PARTS])
    row = jnp.arange(len(PARTS))[None]
    found = is_counted(spans_of(table, row, jnp.ones(row.shape, bool)), mask)[0]
    assert [bool(x) for x in found] == [span in counted for _, span in PARTS]
    assert set(COUNTED) == {"assistant", "state_only", "non_state", "answer_only"}
