"""Tokens of words and of pieces, and turns as text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.errors import ConfigError
from stoix_like.language import templates
from stoix_like.language.dialogue import make_dialogue
from stoix_like.language.rendering import make_table, num_written, pack, require_slots
from stoix_like.language.sampling import sample_token
from stoix_like.language.templates import TurnFacts
from stoix_like.language.tokenizers import TURN_END, word_tokenizer
from stoix_like.language.words import WORDS
from stoix_like.types import Pieces, Prompt, TextWorld

SMALL = word_tokenizer(["a", "ab", " b", "c\n", TURN_END], marks=["<world>", "<4>"])


def test_of_several_words_that_fit_the_longest_is_taken():
    assert SMALL.encode("aab bc\n") == [0, 1, 2, 3]
    assert SMALL.to_text([0, 1, 2, 3]) == "aab bc\n"
    assert SMALL.ends == (4,)
    assert SMALL.prompt(Prompt(("<world>", "<4>"), "not read", "not read")) == [5, 6]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: SMALL.encode("ax"), "no word for 'x'"),
        (lambda: word_tokenizer(["a", "a", TURN_END]), "the word 'a' is empty or comes twice"),
        (lambda: word_tokenizer(["a", "", TURN_END]), "the word '' is empty"),
        (lambda: word_tokenizer(["a"]), "the word '<|im_end|>' is missing"),
        (lambda: make_table(["ab", "ac"], SMALL), "no word for 'c'"),
        (lambda: require_slots("a state", 9, 8, "raise it"), "a state can have 9 tokens, and there are 8 slots"),
    ],
)
def test_what_cannot_be_written_is_said(make, what):
    with pytest.raises(ConfigError, match=what.replace("|", r"\|")):
        make()


def test_the_hash_is_of_the_vocabulary_and_of_its_order():
    words = ["a", "b", TURN_END]
    assert (word_tokenizer(words).hash == word_tokenizer(words).hash).all()
    for other in (["b", "a", TURN_END], ["ab", TURN_END], [*words, "c"]):
        assert (word_tokenizer(words).hash != word_tokenizer(other).hash).any()


def test_every_word_of_the_shipped_vocabulary_is_its_own_token():
    tokenizer = word_tokenizer(WORDS)
    assert [tokenizer.encode(word) for word in WORDS] == [[index] for index in range(len(WORDS))]
    assert len(WORDS) < 100


@pytest.mark.parametrize(
    ("at_end", "tokens", "is_valid"),
    [
        (True, [[0, 0, 0, 1, 2], [0, 0, 0, 0, 0]], [[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]),
        (False, [[0, 1, 2, 0, 0], [0, 0, 0, 0, 0]], [[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]),
    ],
)
def test_pieces_are_packed_without_gaps(at_end, tokens, is_valid):
    table = make_table(["aab", " b", "c\n"], SMALL)  # two tokens, one, one
    pieces = jnp.array([[-1, 0, -1, 1], [-1, -1, -1, -1]])
    found = jax.jit(lambda pieces: pack(table, pieces, 5, at_end=at_end))(pieces)
    np.testing.assert_array_equal(found[0], tokens)
    np.testing.assert_array_equal(found[1], np.array(is_valid, bool))
    np.testing.assert_array_equal(num_written(table, pieces), [3, 0])


def test_what_does_not_fit_is_lost_at_the_far_end():
    table = make_table(["aab", " b", "c\n"], SMALL)
    pieces = jnp.array([[0, 1, 2]])  # four tokens: 0 1 2 3
    np.testing.assert_array_equal(pack(table, pieces, 3, at_end=True)[0], [[1, 2, 3]])
    np.testing.assert_array_equal(pack(table, pieces, 3, at_end=False)[0], [[0, 1, 2]])


def as_text(pieces, mode="base"):
    texts = templates.turn_texts(mode)
    return ["".join(texts[piece] for piece in row if piece >= 0) for row in np.asarray(pieces)]


def facts(turn, rewards, cuts, lefts):
    return TurnFacts(jnp.int32(turn), jnp.float32(rewards), jnp.array(cuts), jnp.array(lefts, jnp.int32))


def test_turns_tell_reward_turn_and_budget():
    rewards = [-0.1, 10.9, 0.0, 1.0, -0.04]
    told = facts(11, rewards, [False, True, False, False, False], [10, 9, 0, 99, 1])
    before = as_text(templates.before_state(told, is_conversation=True))
    user = "\n<|im_start|>user\nReward:\n"
    assert before == [
        f"{user}-0.1\n\nTurn 12:\nState:\n",
        f"<|im_end|>{user}10.9\n\nTurn 12:\nState:\n",
        f"{user}0.0\n\nTurn 12:\nState:\n",
        f"{user}1.0\n\nTurn 12:\nState:\n",
        f"{user}0.0\n\nTurn 12:\nState:\n",
    ]
    assert as_text(templates.before_state(told, is_conversation=False)) == ["Turn 12:\nState:\n"] * 5
    first = facts(0, rewards, [True] * 5, [10] * 5)
    assert as_text(templates.before_state(first, is_conversation=True)) == ["Turn 1:\nState:\n"] * 5
    after = as_text(templates.after_state(told))
    assert [text.partition(" actions left.")[0] for text in after] == [f"You have {n}" for n in (10, 9, 0, 99, 1)]
    assert all(text.endswith("<|im_end|>\n<|im_start|>assistant\n<think>") for text in after)


@pytest.mark.parametrize("is_conversation", [False, True])
def test_the_most_tokens_of_a_turn_are_those_of_its_longest_text(is_conversation):
    """Where every byte is a token, and where every piece is one."""
    told = facts(11, [-10.5], [True], [10])  # everything that a turn can have
    around = [templates.before_state(told, is_conversation=is_conversation), templates.after_state(told)]
    lengths = [len(text) for text in templates.turn_texts("base")]
    longest = sum(len(text) for pieces in around for text in as_text(pieces))
    assert templates.most_tokens(lengths, is_conversation=is_conversation) == longest
    ones = [1] * len(lengths)
    num_pieces = sum(pieces.shape[1] for pieces in around)
    assert templates.most_tokens(ones, is_conversation=is_conversation) == num_pieces


TAGS_OF_PARTS = {"obs": "observation", "pred": "prediction", "answer": "answer"}
REPLIES = {
    "obs_pred_answer": "<observation>the state</observation>your thoughts<prediction>",
    "obs_answer_pred": "<observation>the state</observation>your thoughts</think><answer>your actions</answer><pred",
    "answer_obs_pred": "your thoughts</think><answer>your actions</answer><observation>",
}
PIECES = Pieces(("left", "right!"), lambda state: jnp.full((3,), state), longest=3)
SHOWN = Pieces(
    ("a picture", *PIECES.texts),
    lambda state: jnp.concatenate([jnp.zeros(1, jnp.int32), PIECES.write(state) + 1]),
    longest=4,
    most_tokens=lambda lengths: lengths[0] + 3 * lengths[2],
    told=PIECES,
)


@pytest.mark.parametrize(
    ("mode", "order"), [("base", templates.ORDERS[0]), *(("worldmodel", order) for order in templates.ORDERS)]
)
@pytest.mark.parametrize("pieces", [PIECES, PIECES._replace(most_tokens=lambda lengths: 3 * lengths[1]), SHOWN])
def test_the_most_tokens_of_an_answer_are_those_of_its_longest_text(mode, order, pieces):
    world = TextWorld(None, {"words": pieces}, ("Up", "Further"), {mode: Prompt(())})
    dialogue = make_dialogue(world, rendering="words", mode=mode, is_conversation=False, order=order)
    lengths = [len(text) for text in dialogue.texts]
    state = dialogue.write_told(jnp.ones(1, jnp.int32))  # "right!" three times
    spans = (state, state) if mode == "worldmodel" else None
    answer = dialogue.write_answer(jnp.array([[1, 1]]), spans)
    longest = "".join(dialogue.texts[piece] for piece in answer[0] if piece >= 0)
    assert "</think><answer>Further || Further</answer>" in longest
    assert "a picture" not in longest
    assert longest.endswith("<|im_end|>")
    if mode == "worldmodel":
        places = {name: longest.index(f"<{tag}>") for name, tag in TAGS_OF_PARTS.items()}
        assert "_".join(sorted(places, key=places.get)) == order
        assert f"Reply with <think>{REPLIES[order]}" in dialogue.texts[19]
    assert dialogue.most_answer_tokens(lengths, 2) == len(longest)
    told = facts(11, [0.0], [False], [10])
    turn = "".join(
        dialogue.texts[piece] for piece in dialogue.write_turn(jnp.ones(1, jnp.int32), told)[0] if piece >= 0
    )
    assert dialogue.most_turn_tokens(lengths) == len(turn)


def test_tokens_are_drawn_from_the_softmax_over_the_temperature():
    logits = jnp.log(jnp.array([0.5, 0.25, 0.25]))
    keys = jax.random.split(jax.random.key(0), 20_000)
    tokens, log_prob = jax.jit(sample_token)(keys, jnp.broadcast_to(logits, (20_000, 3)), 0.5)
    wanted = np.array([4, 1, 1]) / 6  # squares of the shares, normalised
    shares = np.bincount(tokens, minlength=3) / 20_000
    np.testing.assert_allclose(shares, wanted, atol=4 * (0.25 / 20_000) ** 0.5)
    np.testing.assert_allclose(log_prob, np.log(wanted)[np.asarray(tokens)], rtol=1e-5)
