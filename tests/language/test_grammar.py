"""The parse of answers against Python's regular expressions on bytes."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.errors import ConfigError
from stoix_like.language.automaton import make_automaton
from stoix_like.language.grammar import advance, begin, is_closed, make_grammar

LAKE = ("Left", "Down", "Right", "Up")
WORDY = ("Turn", "turn Left", "Up", "upper", "go  on", "1,1", "1,1,1", "a>b", "/answer>")
SUDOKU = tuple(f"{row},{column},{number}" for row in range(1, 5) for column in range(1, 5) for number in range(1, 5))
SINGLE_BYTES = [bytes([byte]) for byte in range(256)]
WAYS = [(parser, mode) for parser in ("strict", "lenient") for mode in ("base", "worldmodel")]
STRICT, WORLDMODEL, LENIENT, _ = WAYS
ANSWER = rb"</think>\s*<answer>(.*?)</answer>"
PREDICTED = rb".*?<observation>.*?</observation>.*?<prediction>.*?</prediction>"
PATTERNS = {
    STRICT: rb"<think>(?:.*?)" + ANSWER,
    WORLDMODEL: rb"<think>" + PREDICTED + rb".*?" + ANSWER,
    ("lenient", "base"): rb"<answer>(.*?)</answer>",
    ("lenient", "worldmodel"): rb"<answer>(.*?)</answer>",
}
MAX_ACTIONS = 4
UNKNOWN = len(LAKE)


def by_expressions(text, way, spellings, max_actions=MAX_ACTIONS):
    """The segments of a text after the forced beginning, or None if it is not well-formed."""
    if (found := re.search(PATTERNS[way], b"<think>" + text, re.DOTALL)) is None:
        return None
    actions = {spelling.lower().encode(): action for action, spelling in enumerate(spellings)}
    segments = [segment.strip().lower() for segment in found[1].split(b"||")]
    return [actions.get(segment, len(actions)) for segment in segments if segment][:max_actions]


@functools.partial(jax.jit, static_argnames="max_actions")
def read(grammar, tokens, lengths, max_actions):
    def step(parse, column):
        place, token = column
        return advance(grammar, parse, token, place < lengths), None

    start = begin(grammar, len(tokens), max_actions)
    parse, _ = jax.lax.scan(step, start, (jnp.arange(tokens.shape[1]), tokens.T))
    return parse, is_closed(grammar, parse)


def padded(divided):
    """(tokens [N, T], lengths [N]): what stands behind a text is a token that would do harm."""
    lengths = np.array([len(tokens) for tokens in divided])
    table = np.full((len(divided), 32 * (1 + lengths.max() // 32)), ord("<"))
    for row, tokens in enumerate(divided):
        table[row, : len(tokens)] = tokens
    return table, lengths


def parsed(grammar, divided, max_actions=MAX_ACTIONS):
    """For each text, divided into tokens: the segments, or None if it is not well-formed."""
    parse, closed = jax.device_get(read(grammar, *padded(divided), max_actions))
    assert (parse.num_segments == (parse.segments >= 0).sum(axis=1)).all()
    return [
        segments[:count].tolist() if well_formed else None
        for segments, count, well_formed in zip(parse.segments, parse.num_segments, closed, strict=True)
    ]


IN_ORDER = {
    "obs_pred_answer": b"<observation>o</observation><prediction>p</prediction></think><answer>Up</answer>",
    "obs_answer_pred": b"<observation>o</observation></think><answer>Up</answer><prediction>p</prediction>",
    "answer_obs_pred": b"</think><answer>Up</answer><observation>o</observation><prediction>p</prediction>",
}


@pytest.mark.parametrize("order", IN_ORDER)
def test_a_strict_answer_has_before_it_what_its_order_puts_there(order):
    """What follows the answer is not read, so answers with more before it count as well."""
    grammar = make_grammar(LAKE, SINGLE_BYTES, parser="strict", mode="worldmodel", order=order)
    found = parsed(grammar, [list(text) for text in IN_ORDER.values()])
    asked = list(IN_ORDER).index(order)
    assert found == [[3] if index <= asked else None for index in range(3)]


@functools.cache
def grammar_of_bytes(way, spellings=LAKE):
    parser, mode = way
    return make_grammar(spellings, SINGLE_BYTES, parser=parser, mode=mode)


@pytest.mark.parametrize(
    ("way", "text", "segments"),
    [
        (STRICT, b"hm</think><answer>Up</answer>", [3]),
        (STRICT, b"</think> \t\r\n\x0b\f<answer>uP ||\tRIGHT\n</answer>", [3, 2]),
        (STRICT, b"</think>\xa0<answer>Up</answer>", None),
        (STRICT, b"</think> so <answer>Up</answer>", None),
        (STRICT, b"<answer>Left</answer></think><answer>Up</answer>", [3]),
        (STRICT, b"</think> </think><answer>Up</answer>", [3]),
        (STRICT, b"</think> <</think> <an</think><answer>Up</answer>", [3]),
        (STRICT, b"</think><answer>Up", None),
        (STRICT, b"</think><answer>Up</answer><answer>Down</answer>", [3]),
        (STRICT, b"</think><answer></answer>", []),
        (STRICT, b"</think><answer> || |||| </answer>", []),
        (STRICT, b"</think><answer>|| Up || || Down ||</answer>", [3, 1]),
        (STRICT, b"</think><answer>Up|||Down||Left</answer>", [3, UNKNOWN, 0]),
        (STRICT, b"</think><answer>Up|Down || Left</answer>", [UNKNOWN, 0]),
        (STRICT, b"</think><answer>|</answer>", [UNKNOWN]),
        (STRICT, b"</think><answer>Up|</answer>", [UNKNOWN]),
        (STRICT, b"</think><answer>Up</ans || Left</answer>", [UNKNOWN, 0]),
        (STRICT, b"</think><answer>Up</ans</answer>", [UNKNOWN]),
        (STRICT, b"</think><answer>Up<</answer>", [UNKNOWN]),
        (STRICT, b"</think><answer>Up </answer", None),
        (STRICT, b"</think><answer>U p||U||Upp</answer>", [UNKNOWN] * 3),
        (STRICT, b"</think><answer><answer>Up</answer>", [UNKNOWN]),
        (STRICT, b"</think><answer>Up||Up||hop||Up||Left||Down</answer>", [3, 3, UNKNOWN, 3]),
        (LENIENT, b"</think> so <answer>Up</answer>", [3]),
        (LENIENT, b"<answer>Left</answer></think><answer>Up</answer>", [0]),
        (LENIENT, b"<<answer>Left</answer>", [0]),
        (LENIENT, b"Left", None),
        (WORLDMODEL, b"</think><answer>Up</answer>", None),
        (WORLDMODEL, b"<observation>o</observation><prediction>p</prediction></think><answer>Up</answer>", [3]),
        (WORLDMODEL, b"<prediction></prediction><observation></observation></think><answer>Up</answer>", None),
        (WORLDMODEL, b"<observation></observation></think><prediction></prediction><answer>Up</answer>", None),
        (WORLDMODEL, b"<observation><prediction></observation></prediction></think><answer>Up</answer>", None),
        (WORLDMODEL, b"<observation></observation><prediction></think><answer>Up</answer></prediction>", None),
    ],
)
def test_by_hand(way, text, segments):
    assert by_expressions(text, way, LAKE) == segments
    assert parsed(grammar_of_bytes(way), [list(text)]) == [segments]


def test_spellings_may_begin_alike_and_have_blanks():
    text = (
        b"<answer>turn|| Turn  ||turn left||turn  left||upper||up per||UP||go  on||go on||1,1||1,1,1||/answer></answer>"
    )
    unknown = len(WORDY)
    segments = [0, 0, 1, unknown, 3, unknown, 2, 4, unknown, 5, 6, 8]
    assert by_expressions(text, LENIENT, WORDY, max_actions=12) == segments
    assert parsed(grammar_of_bytes(LENIENT, WORDY), [list(text)], max_actions=12) == [segments]


def test_the_64_spellings_of_sudoku():
    texts = [f"</think><answer>{spelling} || 5,{spelling}</answer>".encode() for spelling in SUDOKU]
    assert parsed(grammar_of_bytes(STRICT, SUDOKU), [list(text) for text in texts]) == [[a, 64] for a in range(64)]


def test_tokens_may_be_empty_or_end_several_segments_and_rows_wait_for_theirs():
    tokens = [b"", b"</think><answer>Up||", b"Left||no||Down||", b"</answer>..."]
    grammar = make_grammar(LAKE, tokens, parser="strict", mode="base")
    assert grammar.token_class.shape == (4,)
    assert grammar.events.shape[2] == 3
    assert parsed(grammar, [[0, 1, 0, 2, 3, 3], [1, 3]]) == [[3, 0, UNKNOWN, 1], [3]]
    assert parsed(grammar, [[1, 2, 3]], max_actions=2) == [[3, 0]]
    before = begin(grammar, 2, MAX_ACTIONS)
    after = jax.jit(advance)(grammar, before, jnp.array([1, 1]), jnp.array([False, True]))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[0], y[0]), before, after)
    assert after.num_segments.tolist() == [0, 1]


def test_tokens_that_act_alike_share_a_class():
    tokens = [*SINGLE_BYTES, b"xyz", b"qq qq", b"XY"]
    classes = make_grammar(LAKE, tokens, parser="strict", mode="base").token_class
    assert classes[256] == classes[258] == classes[ord("X")]
    assert classes[ord(" ")] == classes[ord("\t")] != classes[256]
    assert classes[ord("<")] not in np.delete(classes, ord("<"))


PIECES = [b"<think>", b"</think>", b"<answer>", b"</answer>", b"<observation>", b"</observation>", b"<prediction>"]
PIECES += [b"</prediction>", b"|", b"||", b"||", b"|||", b"<", b"</", b">", b" ", b"\n", b" \t\x0b", b"\xc3\xa9", b"ok"]
PIECES += [b"</thi", b"<ans", b"</answ", b"</obs", b"<pred"]


def made_texts(rng, spellings, count):
    """Texts made of pieces, about half of them near to a well-formed one, with a few of their bytes changed."""
    pieces = PIECES + [change(spelling.encode()) for spelling in spellings[:9] for change in (bytes, bytes.upper)]

    def some(most, among=pieces):
        return b"".join(among[i] for i in rng.integers(len(among), size=rng.integers(most + 1)))

    def tag(name):
        whole = b"<" + name + b">"
        return (whole[: rng.integers(len(whole))] if rng.random() < 0.3 else b"") + whole

    def answer():
        content = b"||".join(some(1) + some(1, [b" ", b"\n"]) + some(1) for _ in range(rng.integers(7)))
        observed = tag(b"observation") + some(1) + tag(b"/observation")
        predicted = tag(b"prediction") + some(1) + tag(b"/prediction")
        thought = some(2) + observed + some(1) + predicted + some(2) + tag(b"/think")
        return thought + some(1, [b" ", b"\n"]) + tag(b"answer") + content + tag(b"/answer")

    def damaged(text):
        for place in rng.integers(max(1, len(text)), size=rng.choice([0, 0, 1, 2])):
            text = text[:place] + some(1) + text[place + rng.integers(3) :]
        return text

    return [damaged(answer() + some(2) if rng.random() < 0.7 else some(16)) for _ in range(count)]


def divided(rng, texts, tokens):
    """Each text as tokens, drawn among those that fit."""
    numbers = {token: number for number, token in enumerate(tokens)}
    longest = max(len(token) for token in tokens)
    draws, rows = iter(rng.integers(1 << 30, size=sum(len(text) for text in texts)).tolist()), []
    for text in texts:
        place, row = 0, []
        while place < len(text):
            fitting = [
                n for n in range(1, longest + 1) if text[place : place + n] in numbers and place + n <= len(text)
            ]
            size = fitting[next(draws) % len(fitting)]
            row.append(numbers[text[place : place + size]])
            place += size
        rows.append(row)
    return rows


@functools.cache
def fuzz(spellings, count):
    """(texts, tokens, two ways to divide the texts)."""
    rng = np.random.default_rng(len(spellings))
    texts = made_texts(rng, spellings, count)
    cuts = [(texts[i], rng.integers(max(1, len(texts[i]))), rng.integers(2, 13)) for i in range(min(count, 300))]
    tokens = list(dict.fromkeys([*SINGLE_BYTES, *(text[at : at + size] for text, at, size in cuts if text[at:])]))
    return texts, tokens, divided(rng, texts, tokens), divided(rng, texts, tokens)


def differences(grammar, way, spellings, count):
    """How many texts are parsed otherwise than by the expressions, in either way to divide them."""
    texts, _, *ways_to_divide = fuzz(spellings, count)
    expected = [by_expressions(text, way, spellings) for text in texts]
    found = [parsed(grammar, rows) for rows in ways_to_divide]
    return sum(any(results[i] != expected[i] for results in found) for i in range(count))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spellings", [LAKE, WORDY])
def test_random_texts_are_parsed_as_by_the_expressions(way, spellings):
    count = 2_000
    texts, tokens, first, second = fuzz(spellings, count)
    assert sum(len(a) != len(b) for a, b in zip(first, second, strict=True)) > count // 2
    assert [b"".join(tokens[token] for token in row) for row in first] == texts
    results = [by_expressions(text, way, spellings) for text in texts]
    assert count // 10 < sum(result is not None for result in results) < count * 9 // 10
    assert sum(bool(result) and len(spellings) in result and min(result) < len(spellings) for result in results) > 50
    grammar = make_grammar(spellings, tokens, parser=way[0], mode=way[1])
    assert differences(grammar, way, spellings, count) == 0


@pytest.mark.parametrize("fault", ["<", "</think", "</think>", "</think><answer>Up", "</think><answer>Up|"])
def test_the_comparison_sees_a_planted_fault(fault):
    count = 2_000
    tokens = fuzz(LAKE, count)[1]
    grammar = make_grammar(LAKE, tokens, parser="strict", mode="base")
    table, lengths = padded([list(fault.encode())])
    state = int(read(grammar, table, lengths, MAX_ACTIONS)[0].state[0])
    token_class = grammar.token_class[ord("<" if "|" not in fault else "|")]
    broken = grammar.next_state.copy()
    broken[state, token_class] = grammar.start
    assert broken[state, token_class] != grammar.next_state[state, token_class]
    assert differences(grammar._replace(next_state=broken), STRICT, LAKE, count) > 0


def test_the_comparison_sees_a_lost_segment():
    grammar = make_grammar(LAKE, fuzz(LAKE, 2_000)[1], parser="strict", mode="base")
    events = np.where(grammar.events == 1, 0, grammar.events)
    assert differences(grammar._replace(events=events), STRICT, LAKE, 2_000) > 0


@pytest.mark.parametrize(
    ("spellings", "what"),
    [
        ((), "the grammar has no action"),
        (("Up", ""), "the spelling of action 1 is empty"),
        (("Up", "uP"), "the spelling 'uP' is that of an earlier action too, as case does not count"),
        (("Süd",), "the spelling 'Süd' is not printable ASCII"),
        (("a\nb",), r"the spelling 'a\nb' is not printable ASCII"),
        ((" Up",), "the spelling ' Up' starts or ends with a blank"),
        (("Up ",), "the spelling 'Up ' starts or ends with a blank"),
        (("a|b",), "the spelling 'a|b' has a character of the separator or of a tag"),
        (("<up>",), "the spelling '<up>' has a character of the separator or of a tag"),
    ],
)
def test_spellings_that_an_answer_could_not_hold_are_refused(spellings, what):
    with pytest.raises(ConfigError) as refused:
        make_automaton(spellings, parser="strict", mode="base")
    assert refused.value.what == what
    assert refused.value.hint == "spell every action by a word of its own, without < and |, such as Up"
