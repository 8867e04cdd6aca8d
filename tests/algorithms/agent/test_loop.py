"""The loop of turns: what is written, what is parsed, what it earns, and that no host has a part in it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.agents import TOKENIZER, scripted_speaker, tiny_agent, tiny_world

from stoix_like.algorithms.agent import playing
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.speaking import model_speaker
from stoix_like.algorithms.text.reading import pack_rows, read_rows
from stoix_like.envs.text.frozen_lake import FrozenLakeState
from stoix_like.envs.text.grids import Lake, Position

END = "<|im_end|>"
REMINDER = " actions left. Reply with <think>your thoughts</think><answer>your actions</answer> and nothing else."
ASSISTANT = f"{END}\n<|im_start|>assistant\n<think>"
CONTEXTS = pytest.mark.parametrize("context", ["single_turn", "full"])


def on_one_lake(world):
    """The world with one lake: the goal is two steps to the right of the start, a hole is below it."""
    holes = jnp.zeros((3, 3), bool).at[1, 0].set(True)
    lake = Lake(holes, Position(jnp.int32(0), jnp.int32(0)), Position(jnp.int32(0), jnp.int32(2)))

    def reset(key):
        _, timestep = world.env.reset(key)
        return FrozenLakeState(lake, lake.start, jnp.int32(0), key), timestep

    return world._replace(env=world.env._replace(reset=reset, held_out=None))


def play_script(lines, group_size=1, intended_p=1.0, **leaves):
    num_turns = leaves.get("num_turns", 3)
    world = on_one_lake(tiny_world(intended_p, num_turns))
    agent, _, lexicon = tiny_agent(world, group_size=group_size, num_envs=group_size, num_minibatches=1, **leaves)
    play = jax.jit(
        lambda keys: rollout(agent.dialogue, lexicon, agent.rules, scripted_speaker(agent, lines), keys, keys)
    )
    return agent, *jax.device_get(play(jax.random.split(jax.random.key(2), 1)))


def text_of(episodes, row=0):
    return [TOKENIZER.to_text(t[v]) for t, v in zip(episodes.tokens[row], episodes.is_valid[row], strict=True)]


STATE = " P _ G\n O _ _\n _ _ _\nPlayer (P) is at (0,0) ; holes (O) are at (1,0) ; goal (G) is at (0,2) .\n"
AFTER_RIGHT = STATE.replace(" P _ G", " _ P G").replace("at (0,0)", "at (0,1)", 1)
RIGHT = f"</think><answer>Right</answer>{END}"


def test_single_turns_are_written_as_if_each_were_the_first():
    _, episodes, _ = play_script([RIGHT, RIGHT, RIGHT])
    assert text_of(episodes) == [
        f"Turn 1:\nState:\n{STATE}You have 5{REMINDER}{ASSISTANT}{RIGHT}",
        f"Turn 2:\nState:\n{AFTER_RIGHT}You have 4{REMINDER}{ASSISTANT}{RIGHT}",
        "",
    ]


def test_a_conversation_tells_the_reward_and_ends_an_answer_that_was_cut():
    wrong = f"</think><answer>Right || Left || Goal{END}".replace("Goal", "Player (P) is at")
    _, episodes, _ = play_script([wrong, "</think><answer>Right</answer>", RIGHT], context="full")
    assert text_of(episodes) == [
        f"Turn 1:\nState:\n{STATE}You have 5{REMINDER}{ASSISTANT}{wrong}",
        f"\n<|im_start|>user\nReward:\n0.0\n\nTurn 2:\nState:\n{STATE}You have 5{REMINDER}{ASSISTANT}"
        "</think><answer>Right</answer>",
        f"{END}\n<|im_start|>user\nReward:\n0.0\n\nTurn 3:\nState:\n{AFTER_RIGHT}"
        f"You have 4{REMINDER}{ASSISTANT}{RIGHT}",
    ]
    np.testing.assert_array_equal(episodes.turns.was_cut[0], [False, True, False])
    np.testing.assert_allclose(episodes.turns.reward[0], [0.0, 0.0, 1.0])


def said(answer):
    return f"</think><answer>{answer}</answer>{END}"


@pytest.mark.parametrize(
    ("lines", "reward", "penalty", "actions", "well_formed"),
    [
        ([said("Right || Right")], [1.0], [0.0], [2], [True]),
        ([said("Right"), said("Right")], [0.0, 1.0], [0.0, 0.0], [1, 1], [True, True]),
        ([said("Right || Right || Left")], [1.0], [0.0], [2], [True]),  # the third is beyond the two of a turn
        ([said("Right||") + "", said("Right")], [0.0, 1.0], [0.0, 0.0], [1, 1], [True, True]),
        ([said("Player (P) is at || Right"), said("Right")], [0.0, 1.0], [-0.1, 0.0], [1, 1], [False, True]),
        ([said("."), said(""), RIGHT], [0.0] * 3, [-0.1, -0.1, 0.0], [0, 0, 1], [False, False, True]),
        ([f"<answer>Right</answer>{END}", RIGHT, RIGHT], [0, 0, 1.0], [-0.1, 0, 0], [0, 1, 1], [False, True, True]),
        ([said("Down"), RIGHT], [0.0, 0.0], [0.0, 0.0], [1, 0], [True, False]),  # drowned: the second is not played
        ([said("Down || Right")], [0.0], [0.0], [1], [True]),  # the second action comes after the end
    ],
)
def test_what_turns_earn(lines, reward, penalty, actions, well_formed):
    lines = [line.replace("Right||", "Right || ") for line in lines]
    _, episodes, _ = play_script(lines + [RIGHT] * (3 - len(lines)))
    turns, count = episodes.turns, len(reward)
    np.testing.assert_array_equal(turns.reward[0, :count], np.float32(reward))
    np.testing.assert_array_equal(turns.penalty[0, :count], np.float32(penalty))
    np.testing.assert_array_equal(turns.num_actions[0, :count], actions)
    np.testing.assert_array_equal(turns.is_well_formed[0, :count], well_formed)


@pytest.mark.parametrize(
    ("line", "segments", "named", "actions", "effective"),
    [
        (said("Left || Right"), 2, 2, 2, 1),  # the first is against the border
        (said("Player (P) is at || Right"), 2, 1, 1, 1),
        (said("Down || Right"), 2, 2, 1, 1),  # drowned: the second is not taken
        (f"<answer>Right</answer>{END}", 0, 0, 0, 0),
    ],
)
def test_what_was_written_named_taken_and_had_an_effect_is_counted(line, segments, named, actions, effective):
    _, episodes, _ = play_script([line, RIGHT, RIGHT])
    turns = episodes.turns
    counts = (turns.num_segments, turns.num_named, turns.num_actions, turns.num_effective)
    assert tuple(int(count[0, 0]) for count in counts) == (segments, named, actions, effective)


def test_an_episode_ends_with_its_budget_of_actions_or_of_turns():
    back_and_forth = said("Right || Left")
    _, episodes, world = play_script([back_and_forth] * 4, num_turns=4)
    np.testing.assert_array_equal(episodes.turns.num_actions[0], [2, 2, 1, 0])  # five in all
    np.testing.assert_array_equal(episodes.turns.was_played[0], [True, True, True, False])
    assert world.timestep.step_type[0] == 2
    _, episodes, world = play_script([back_and_forth] * 2, num_turns=2)
    assert world.num_actions[0] == 4
    assert episodes.turns.was_played.all()


def test_lenient_answers_need_no_thoughts():
    line = f"<answer>Right</answer>{END}"
    _, episodes, _ = play_script([line, line, line], parser="lenient")
    np.testing.assert_array_equal(episodes.turns.is_well_formed[0], [True, True, False])


def test_a_group_shares_its_level_and_its_chances_unless_they_are_its_members_own():
    slips = [said("Right")] * 3
    shared, own = (
        play_script(slips, group_size=8, intended_p=0.34, shared_env_noise=shared)[2].env_state.position
        for shared in (True, False)
    )
    assert len(set(zip(shared.row.tolist(), shared.col.tolist(), strict=True))) == 1
    assert len(set(zip(own.row.tolist(), own.col.tolist(), strict=True))) > 1


@functools.cache
def sampled(context, num_groups=6):
    agent, params, lexicon = tiny_agent(context=context)

    @jax.jit
    def play(keys):
        ends, slots = lexicon.ends, agent.rules.slots
        speaker = model_speaker(agent.model, params, lexicon.prompt, ends, slots, agent.temperature)
        return rollout(agent.dialogue, lexicon, agent.rules, speaker, keys, keys)

    keys = jax.random.split(jax.random.key(4), num_groups)
    return agent, params, lexicon, play, keys, play(keys)[0]


@CONTEXTS
def test_the_trainer_reads_what_the_sampler_sampled(context):
    """float32 sums in another order: 1e-5 in log-probabilities of order 5."""
    agent, params, lexicon, _, _, episodes = sampled(context)
    packed = pack_rows(agent.rules.slots, episodes.tokens, episodes.is_valid)
    logits, value = jax.jit(functools.partial(read_rows, agent.model))(params, lexicon.prompt, packed)
    log_prob = jnp.take_along_axis(
        jax.nn.log_softmax(logits), episodes.chosen.reshape(logits.shape[:-1])[..., None], -1
    )
    chosen = np.asarray(episodes.is_chosen)
    assert chosen.sum() > 200
    np.testing.assert_allclose(log_prob.reshape(chosen.shape)[chosen], episodes.log_prob[chosen], atol=1e-5, rtol=0)
    np.testing.assert_allclose(value.reshape(chosen.shape)[chosen], episodes.value[chosen], atol=1e-5, rtol=0)
    assert float(jnp.std(episodes.value[chosen])) > 0.1


@CONTEXTS
def test_single_turns_and_conversations_see_what_they_should(context):
    """The trainer's log-probability of a later turn changes with the first turn in a conversation alone."""
    agent, params, lexicon, _, _, episodes = sampled(context)
    read = jax.jit(functools.partial(read_rows, agent.model))
    logits = []
    for tokens in (episodes.tokens, episodes.tokens.at[:, 0].add(1)):
        found, _ = read(params, lexicon.prompt, pack_rows(agent.rules.slots, tokens, episodes.is_valid))
        logits.append(found.reshape(*episodes.chosen.shape, -1)[:, 1][np.asarray(episodes.turns.was_played[:, 1])])
    differs = float(jnp.abs(logits[0] - logits[1]).max())
    assert (differs > 1e-3) if context == "full" else (differs == 0.0)


@CONTEXTS
def test_tokens_of_a_group_do_not_depend_on_the_others(context):
    agent, _, _, play, keys, episodes = sampled(context)
    size, order = agent.rules.group_size, np.array([4, 1, 5, 0, 3, 2])
    moved = play(keys[order])[0]
    rows = (order[:, None] * size + np.arange(size)[None]).reshape(-1)
    np.testing.assert_array_equal(moved.tokens, np.asarray(episodes.tokens)[rows])
    assert len({tuple(row.reshape(-1)) for row in np.asarray(episodes.tokens)}) == len(rows)  # members differ


def callbacks_in(jaxpr):
    """Names of the primitives by which a program calls Python, wherever in it."""
    found = set()
    for equation in jaxpr.eqns:
        if "callback" in equation.primitive.name or equation.primitive.name in ("outside_call", "debug_print"):
            found.add(equation.primitive.name)
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            found |= callbacks_in(inner) if hasattr(inner, "eqns") else set()
    return found


def test_no_host_is_in_the_loop(monkeypatch):
    *_, play, keys, _ = sampled("single_turn")
    assert callbacks_in(jax.make_jaxpr(play)(keys).jaxpr) == set()
    honest = playing.play_turn

    def with_a_host(*arguments):
        jax.debug.callback(lambda _: None, arguments[-1])
        return honest(*arguments)

    monkeypatch.setattr(playing, "play_turn", with_a_host)
    agent, params, lexicon = tiny_agent()
    speaker = model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, agent.rules.slots, 1.0)
    faulty = jax.make_jaxpr(lambda keys: rollout(agent.dialogue, lexicon, agent.rules, speaker, keys, keys)[0])(keys)
    assert callbacks_in(faulty.jaxpr) != set()
