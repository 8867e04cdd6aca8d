"""Rows for fine-tuning: their states are those of the world, played once more by hand from what the answers say."""

import re

import jax
import numpy as np
import pytest
from support.agents import TOKENIZER, tiny_world
from support.rows import played

from stoix_like.algorithms.text.generation import GenerationRules, PlayedTurns, after_pieces, make_rows, split
from stoix_like.algorithms.text.world_rows import WrittenTurns

MOVES = ["Left", "Down", "Right", "Up"]


def rows_of(context="single_turn", seed=0, **rules):
    agent, turns, _ = played(context)
    rng = np.random.default_rng(seed)
    return make_rows(agent.rules.slots, TOKENIZER.token_bytes, turns, GenerationRules(**rules), rng)


def text_of(state, rendering="both"):
    """A state as its world writes it, by pieces."""
    pieces = tiny_world().pieces[rendering]
    return "".join(pieces.texts[piece] for piece in np.asarray(pieces.write(state)) if piece >= 0)


def states_by_hand(level_key, answers, rendering="both"):
    """The texts of the states before each answer of an episode, and after the last one."""
    env = tiny_world().env
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    state, timestep = reset(level_key)
    found = [text_of(state, rendering)]
    for answer in answers:
        for name in re.search("<answer>(.*)</answer>", answer)[1].split(" || "):
            if not timestep.last():
                state, timestep = step(state, MOVES.index(name))
        found.append(text_of(state, rendering))
    return found


def parts(answer):
    return [re.search(f"<{tag}>(.*)</{tag}>", answer, re.DOTALL)[1] for tag in ("observation", "prediction")]


@pytest.mark.parametrize("context", ["single_turn", "full"])
def test_the_states_of_every_row_are_those_of_the_world(context):
    agent, turns, keys = played(context)
    rows, trajectory, counts = rows_of(context)
    is_played = turns.episodes.turns.was_played
    assert counts.played == (len(is_played) if context == "full" else is_played.sum())
    assert len(rows.tokens) == counts.played - counts.twice
    assert (counts.too_long, counts.indivisible, counts.untagged) == (0, 0, 0)
    num_state, seen = agent.rules.slots.state, 0
    for episode in range(len(is_played)):
        of_episode = np.flatnonzero(trajectory == episode)
        tokens, valid = (x[of_episode].reshape(-1, x.shape[-1]) for x in rows)
        answers = [TOKENIZER.to_text(t[num_state:][v[num_state:]]) for t, v in zip(tokens, valid, strict=True)]
        answers = [answer for answer in answers if answer]
        if len(answers) < is_played[episode].sum():  # one of its turns is also one of another episode
            continue
        wanted = states_by_hand(keys[episode], answers)
        for turn, answer in enumerate(answers):
            assert parts(answer) == [wanted[turn], wanted[turn + 1]]
            seen += 1
    assert seen > 10


def test_where_turns_show_the_grid_too_answers_tell_the_sentence_alone():
    """In the grid and the sentence stand the same signs, so that the one has to be told from the other."""
    agent, turns, keys = played(rendering_name="grid_positions", answer_length=None)
    rng = np.random.default_rng(0)
    rows, trajectory, counts = make_rows(agent.rules.slots, TOKENIZER.token_bytes, turns, GenerationRules(), rng)
    assert (counts.too_long, counts.indivisible, counts.untagged) == (0, 0, 0)
    num_state, seen = agent.rules.slots.state, 0
    for episode in np.unique(trajectory):
        tokens, valid = (x[trajectory == episode, 0] for x in rows)
        texts = [TOKENIZER.to_text(t[v]) for t, v in zip(tokens, valid, strict=True)]
        answers = [TOKENIZER.to_text(t[num_state:][v[num_state:]]) for t, v in zip(tokens, valid, strict=True)]
        if len(answers) < turns.episodes.turns.was_played[episode].sum():
            continue
        wanted = states_by_hand(keys[episode], answers, "positions")
        shown = states_by_hand(keys[episode], answers, "grid_positions")
        for turn, answer in enumerate(answers):
            assert parts(answer) == [wanted[turn], wanted[turn + 1]]
            assert f"State:\n{shown[turn]}You have" in texts[turn]
            assert "\n" not in wanted[turn][:-1]
            seen += 1
    assert seen > 5


@pytest.mark.parametrize("num_shown", [0, 1, 16])
def test_the_sentence_is_told_from_the_grid_where_every_byte_is_a_token(num_shown):
    """Its first letter stands in the grid as well, as the player."""
    shown = [list(f" {symbol}{end}".encode()) for symbol in "_OGPX" for end in ("", "\n")]
    sentence = list(b"Player (P) is at (0,1) ; goal (G) is at (1,0) .\n")
    grid = [token for n in range(num_shown) for token in shown[n % len(shown)]]
    assert after_pieces(grid + sentence, shown) == sentence
    assert after_pieces(grid + sentence, []) == grid + sentence


def test_all_but_the_states_is_as_it_was_sampled():
    agent, turns, _ = played()
    sampled, *_ = rows_of(states="self_belief")
    rows, *_ = rows_of()
    num_state = agent.rules.slots.state
    np.testing.assert_array_equal(rows.tokens[..., :num_state], sampled.tokens[..., :num_state])

    def without_states(row, valid):
        text = TOKENIZER.to_text(row[num_state:][valid[num_state:]])
        return re.sub("(?s)<(observation|prediction)>.*?</", r"<\1></", text)

    pairs = zip(rows.tokens[:, 0], rows.is_valid[:, 0], sampled.tokens[:, 0], sampled.is_valid[:, 0], strict=True)
    differs = 0
    for one, one_valid, two, two_valid in pairs:
        assert without_states(one, one_valid) == without_states(two, two_valid)
        differs += one[one_valid].tolist() != two[two_valid].tolist()
    assert differs > len(rows.tokens) // 2
    is_played = turns.episodes.turns.was_played
    np.testing.assert_array_equal(
        np.sort(sampled.tokens[:, 0], axis=0), np.sort(np.unique(turns.episodes.tokens[is_played], axis=0), axis=0)
    )


def test_random_states_are_states_of_the_episodes_and_mostly_others():
    agent, turns, _ = played()
    texts = {TOKENIZER.to_text(state) for states in turns.states for state in states}
    rows, *_ = rows_of(states="random_state")
    true, *_ = rows_of()
    num_state = agent.rules.slots.state
    answers = lambda of: [
        TOKENIZER.to_text(t[num_state:][v[num_state:]]) for t, v in zip(of.tokens[:, 0], of.is_valid[:, 0], strict=True)
    ]
    found = [parts(answer) for answer in answers(rows)]
    assert {text for pair in found for text in pair} <= texts
    same = sum(one == other for one, other in zip(found, map(parts, answers(true)), strict=False))
    assert same < len(found) // 2


def test_random_states_are_never_those_of_their_own_turn():
    """States are numbered by what they are, so that each tells where it comes from; the rows have the same numbers."""
    agent, turns, _ = played()
    digits = [[int(token) for token in TOKENIZER.encode(f" ({n // 4},{n % 4})")] for n in range(4)]
    episodes = jax.tree.map(lambda x: x[:2], turns.episodes)
    is_first = np.arange(episodes.turns.was_played.shape[1]) == 0
    episodes = episodes._replace(turns=episodes.turns._replace(was_played=np.tile(is_first, (2, 1))))
    of_two = PlayedTurns(episodes, [digits[:2], digits[2:]])
    rules, slots = GenerationRules(states="random_state"), agent.rules.slots
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows, trajectory, _ = make_rows(slots, TOKENIZER.token_bytes, of_two, rules, rng)
        for tokens, valid, number in zip(rows.tokens[:, 0], rows.is_valid[:, 0], trajectory, strict=True):
            told = parts(TOKENIZER.to_text(tokens[slots.state :][valid[slots.state :]]))
            other = {TOKENIZER.to_text(np.array(state)) for state in of_two.states[1 - number]}
            assert set(told) <= other


def test_what_no_longer_fits_is_left_out_and_counted():
    agent, turns, _ = played()
    longest = max(len(t) for states in turns.states for t in states)
    slots = agent.rules.slots
    episodes = turns.episodes
    narrow = slots._replace(answer=longest)  # shorter than two states
    cut = slots.per_turn - slots.answer + longest
    short = episodes._replace(
        tokens=episodes.tokens[..., :cut],
        is_valid=episodes.is_valid[..., :cut],
        log_prob=episodes.log_prob[..., :longest],
    )
    is_valid = np.array(short.is_valid)
    is_valid[..., slots.state + 3 :] = False  # what was sampled is short, and has no tags
    text = [TOKENIZER.encode(tag)[0] for tag in ("<observation>", "</observation>", "<prediction>", "</prediction>")]
    tokens = np.array(short.tokens)
    tokens[..., slots.state : slots.state + 4] = text
    is_valid[..., slots.state : slots.state + 4] = True
    rng = np.random.default_rng(0)
    given = turns._replace(episodes=short._replace(tokens=tokens, is_valid=is_valid))
    rows, _, counts = make_rows(narrow, TOKENIZER.token_bytes, given, GenerationRules(), rng)
    assert counts.too_long == counts.played > 0
    assert len(rows.tokens) == 0


def test_rows_without_tags_are_kept_or_left_out():
    agent, turns, _ = played()
    is_valid = np.array(turns.episodes.is_valid)
    is_valid[0, 0, agent.rules.slots.state :] = False
    is_valid[0, 0, agent.rules.slots.state] = True  # one token, which is no whole observation
    given = turns._replace(episodes=turns.episodes._replace(is_valid=is_valid))
    for keeps in (True, False):
        rules = GenerationRules(keeps_untagged=keeps)
        rows, _, counts = make_rows(agent.rules.slots, TOKENIZER.token_bytes, given, rules, np.random.default_rng(0))
        assert counts.untagged == 1
        assert len(rows.tokens) == counts.played - counts.twice - (not keeps)


def test_the_turns_after_one_without_tags_get_their_states_too():
    agent, turns, _ = played("full")
    slots = agent.rules.slots
    episode = int(turns.episodes.turns.was_played.sum(axis=1).argmax())
    assert turns.episodes.turns.was_played[episode].sum() > 1
    is_valid = np.array(turns.episodes.is_valid)
    is_valid[episode, 0, slots.state + 1 :] = False
    given = turns._replace(episodes=turns.episodes._replace(is_valid=is_valid))
    rows, trajectory, counts = make_rows(
        slots, TOKENIZER.token_bytes, given, GenerationRules(), np.random.default_rng(0)
    )
    assert counts.untagged == 1
    row = int(np.flatnonzero(trajectory == episode)[0])
    second = TOKENIZER.to_text(rows.tokens[row, 1, slots.state :][rows.is_valid[row, 1, slots.state :]])
    wanted = [TOKENIZER.to_text(state) for state in turns.states[episode][1:3]]
    assert parts(second) == wanted


def test_a_trajectory_is_in_one_split():
    rows, trajectory, _ = rows_of()
    is_held_out = split(trajectory, 0.3, np.random.default_rng(1))
    assert is_held_out.shape == (len(rows.tokens),)
    numbers = [set(trajectory[~is_held_out].tolist()), set(trajectory[is_held_out].tolist())]
    assert not numbers[0] & numbers[1]
    assert len(numbers[1]) == round(0.3 * len(np.unique(trajectory)))


def test_no_row_is_no_error():
    agent, turns, _ = played()
    nothing = turns.episodes.turns._replace(was_played=np.zeros_like(turns.episodes.turns.was_played))
    given = turns._replace(episodes=turns.episodes._replace(turns=nothing), states=[])
    rows, trajectory, counts = make_rows(
        agent.rules.slots, TOKENIZER.token_bytes, given, GenerationRules(), np.random.default_rng(0)
    )
    assert isinstance(rows, WrittenTurns)
    assert (len(rows.tokens), len(trajectory), counts.played) == (0, 0, 0)
