"""The loops on the host that ours is measured beside: they play by the same rules, and write what ours writes."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stoix_like as sl
from stoix_like.bench.agents import pipelines, speed
from stoix_like.bench.agents.batching import make_codec, padded
from stoix_like.bench.agents.conversations import Conversation, add_answer, add_user_turn, parse
from stoix_like.bench.agents.host_loops import make_loops
from stoix_like.bench.agents.policies import (
    compiled_rollout,
    lakes_of,
    make_case,
    member_keys,
    pretrained,
    text_world,
    texts_of,
)
from stoix_like.bench.agents.python_lake import copy_lakes
from stoix_like.bench.timing.measure import Timing
from stoix_like.config.sections.agent_runs import agent_config
from stoix_like.language import grammar as grammars
from stoix_like.language.tokenizers import TURN_END
from stoix_like.runtime.stages.manifest import Manifest, write_manifest
from stoix_like.spa.folders import Layout

TINY = {
    "kwargs": {"size": 3, "intended_p": 1.0, "max_actions": 6},
    "context": "full",
    "rendering": "coordinates",
    "num_turns": 4,
    "actions_per_turn": 2,
    "num_envs": 4,
    "group_size": 2,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "tie_embeddings": False,
}
#: After a word, those that may follow it. The model adds to their logits what it reads.
FOLLOWING = {
    "<think>": ("</think>",),
    "</think>": ("<answer>",),
    "<answer>": ("Left", "Down", "Right", "Up", " none"),
    **dict.fromkeys(("Left", "Down", "Right", "Up", " none"), (" || ", "</answer>")),
    " || ": ("Left", "Down", "Right", "Up"),
    "</answer>": (TURN_END, " none"),
}


def writing_case():
    """A case whose policy mostly writes answers of the format, by weights that no training found."""
    tokenizer = sl.make_tokenizer()
    ids = {token.decode(): index for index, token in enumerate(tokenizer.token_bytes)}
    width = 4 * -(-len(ids) // 4)  # a place for each word, in two heads of an even size
    leaves = TINY | {"hidden_dim": width}
    config = agent_config(**leaves)
    agent = sl.agent.make_agent(text_world(config), tokenizer, config)
    params = agent.model.init(jax.random.key(0))
    head = np.zeros((width, agent.model.sizes.vocab_size), np.float32)
    for word, following in FOLLOWING.items():
        head[ids[word], [ids[each] for each in following]] = 1.0
    embedding = 10.0 * jnp.eye(agent.model.sizes.vocab_size, width)  # louder than what is added to it
    params = params._replace(torso=params.torso._replace(embedding=embedding), actor=jnp.asarray(head))
    return make_case(params, leaves)


@pytest.fixture(scope="module")
def case():
    return writing_case()


def test_the_python_lake_is_ours_over_random_actions():
    env = sl.make_env("FrozenLake-text-v0", kwargs={"intended_p": 1.0})
    state, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 64))
    lakes, step = copy_lakes(state, env.time_limit), jax.jit(jax.vmap(env.step))
    rng, rewards = np.random.default_rng(0), 0.0
    for _ in range(env.time_limit):
        was_over = np.asarray(timestep.last())
        actions = rng.integers(4, size=len(lakes))
        state, timestep = step(state, jnp.asarray(actions))
        for index in np.flatnonzero(~was_over):
            lake = lakes[index]
            reward = lake.step(int(actions[index]))
            rewards += reward
            assert (reward, lake.is_over) == (float(timestep.reward[index]), bool(timestep.last()[index]))
            assert lake.player == (int(state.position.row[index]), int(state.position.col[index]))
        timestep = timestep._replace(step_type=jnp.where(was_over, 2, timestep.step_type))
    assert rewards > 3
    assert all(lake.is_over for lake in lakes)


def test_the_four_loops_write_the_same_texts_with_the_same_keys(case):
    episodes, world = compiled_rollout(case)()
    texts = texts_of(case, episodes)
    turns = episodes.turns
    assert float(turns.num_actions.sum()) > 8
    assert 0 < int((turns.was_played & ~turns.is_well_formed).sum()) < int(turns.was_played.sum())
    assert int((turns.was_cut & turns.was_played).sum()) > 0
    assert len(set(np.asarray(turns.was_played.sum(axis=1)).tolist())) > 1  # some are over before others
    for name, play in make_loops(case).items():
        conversations = play()
        assert [conversation.text for conversation in conversations] == texts, name
        assert sum(conversation.num_tokens for conversation in conversations) == int(episodes.is_chosen.sum())
        assert [each.lake.num_actions for each in conversations] == world.num_actions.tolist()
        assert [conversation.text for conversation in play()] == texts, f"{name} again"


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("</think><answer>Up</answer>", [3]),
        ("I go</think> \n<answer> left || DOWN </answer>", [0, 1]),
        ("</think><answer>Up || none || Left</answer>", [3]),  # the second of two is unknown
        ("</think><answer> || Right || </answer>", [2]),
        ("</think><answer>Up", []),
        ("<answer>Up</answer>", []),
        ("</think>so<answer>Up</answer>", []),
        ("</think>so</think><answer>Up</answer> and <answer>Left</answer>", [3]),
    ],
)
def test_the_regular_expression_finds_what_the_grammar_finds(text, actions):
    grammar = grammars.make_grammar(
        ("Left", "Down", "Right", "Up"), [bytes([byte]) for byte in range(256)], parser="strict", mode="base"
    )
    grammar = jax.tree.map(jnp.asarray, grammar)
    read = jax.jit(functools.partial(grammars.advance, grammar))
    found = grammars.begin(grammar, 1, 2)
    for byte in text.encode():
        found = read(found, jnp.array([byte]), jnp.array([True]))
    is_closed = bool(grammars.is_closed(grammar, found)[0])
    segments = [int(segment) for segment in found.segments[0] if is_closed and 0 <= segment < 4]
    assert parse(text, 2) == segments == actions


def test_texts_become_the_tokens_of_our_tokenizer_at_the_ends_of_their_slots(case):
    codec, (lake, *_) = make_codec(case.tokenizer), lakes_of(case)
    conversation = Conversation(lake)
    for turn, answer in enumerate(["</think><answer>Up</answer>", f"</think><answer>Up</answer>{TURN_END}"]):
        add_user_turn(conversation, turn)
        add_answer(conversation, answer, 1)
    tokens = codec.encode(conversation.text)
    assert tokens == case.tokenizer.encode(conversation.text)
    assert codec.decode(tokens) == conversation.text
    assert conversation.text.count(TURN_END) == 4  # two of the world's turns, one of an answer that was cut, one not
    rows, is_valid = padded([[5, 6], []], 3, 3)
    assert rows.tolist() == [[0, 5, 6], [0, 0, 0], [0, 0, 0]]
    assert is_valid.sum(axis=1).tolist() == [2, 0, 0]


def test_keys_are_those_of_members_of_groups(case):
    keys = member_keys(case)
    expected = jax.random.fold_in(jax.random.split(case.keys[1])[0], 1)
    assert jax.random.key_data(keys)[3].tolist() == jax.random.key_data(expected).tolist()


def test_learning_needs_three_times_the_operations_of_playing(case):
    played, width = speed.Played(tokens=10, read=100, world_steps=3, well_formed=1.0), case.agent.model.sizes.width
    weights = 4 * width**2 + 3 * width * case.agent.model.sizes.ffn_width + 2 * width
    assert speed.num_weights(case.params) == weights
    assert speed.needed_flops(case.params, played, 1) == 2 * (weights * 100 + case.params.torso.embedding.size * 10)
    assert speed.needed_flops(case.params, played, 3) == 3 * speed.needed_flops(case.params, played, 1)


@pytest.mark.full
def test_every_row_has_a_rate(monkeypatch):
    """Without timing, and without loops on the host."""

    def time_interleaved(functions, repetitions):
        for run in functions.values():
            jax.block_until_ready(run())
        return {name: Timing(0.5 if name == "ours" else 2.0, 0.1) for name in functions}

    monkeypatch.setattr(speed, "time_interleaved", time_interleaved)
    monkeypatch.setattr(speed, "LEAVES", TINY | {"tie_embeddings": True, "num_turns": 1, "num_minibatches": 1})
    monkeypatch.setattr(speed, "pretrained", lambda leaves, *_: pretrained(leaves, 1, 4))
    nothing = [Conversation(None)] * 4
    monkeypatch.setattr(speed, "make_loops", lambda _: dict.fromkeys(speed.WAYS, lambda: nothing))
    *beside, alone, learning, exact, short = speed.agent_speed_suite()
    assert [row.name for row in beside] == [f"agent/rollout/{way}" for way in speed.WAYS]
    assert all(row.ratio == 4.0 for row in beside)
    assert all(row.note.endswith("; 0 of 4 conversations are ours") for row in beside)
    assert (alone.name, learning.name) == ("agent/rollout/single_turn", "agent/train")
    assert all(0.0 < row.share < 1.0 for row in (alone, learning))
    assert (exact.name, short.name) == ("agent/log_prob_gap/float32", "agent/log_prob_gap/bfloat16")
    assert exact.value < 1e-5 < short.value < 0.1


def test_rates_of_stages_are_those_after_the_first_report(tmp_path, monkeypatch):
    """Of a pipeline that was written by hand: of a run, a row of generation, and one without a run."""
    layout = Layout(tmp_path / "smoke")
    facts = {
        "pretrain": {"updates": 24},
        "generate": {"played": 50, "generated_tokens": 900},
        "evaluate": {"points": {"ppo": {}}},
    }
    for stage, known in facts.items():
        layout.stage(stage).mkdir(parents=True)
        write_manifest(layout.stage(stage), Manifest(stage, {}, {}, {}, known, {"seconds": 3.0}))
    layout.run("pretrain").mkdir()
    start = {"category": "MISC", "misc/algorithm": "pretraining", "misc/task_id": "x", "timesteps": 0}
    reports = [{"category": "TRAINER", "seed": 0, "update": n, "timesteps": n} for n in (1, 2, 3)]
    for number, report in enumerate(reports):
        report |= {"elapsed_seconds": 100.0 + 2 * number, "trainer/trained_tokens_max": 10 * number + 5}
    rows = [start, *reports]
    (layout.run("pretrain") / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(pipelines, "PRESETS", ("smoke",))
    monkeypatch.setattr(pipelines, "STAGE_NAMES", tuple(facts))
    monkeypatch.setattr(pipelines, "_pipeline", lambda *_: layout)
    found = {row.name: (row.value, row.unit) for row in pipelines.spa_suite()}
    assert found == {
        "smoke/pretrain_seconds": (3.0, "s"),
        "smoke/pretrain_trained_tokens": (5.0, "tokens/s"),
        "smoke/generate_seconds": (3.0, "s"),
        "smoke/generate_tokens": (300.0, "tokens/s"),
        "smoke/evaluate_seconds": (3.0, "s"),
    }
