# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # An agent that writes, as pure functions
#
# An agent reads the state of a world as text, writes an answer token by token, and the answer is taken as an action.
# Here the world, the text, the sampling of tokens with a cache, and the parsing of the answer are one compiled
# program. This notebook makes a world from nothing, plays in it, and trains two small decoders from scratch: one sees
# the turn that it is in, the other all turns before as well. How much that is worth can be counted by hand.
#
# It is a Python file in jupytext's percent format. Run it as a script (`python docs/notebooks/language_agent.py`), open
# it in an editor that knows the format, or make a notebook of it with `jupytext --to ipynb
# docs/notebooks/language_agent.py`. With `STOIX_LIKE_FAST=1` the budgets shrink to what the tests run.

# %%
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import stoix_like as sl
from stoix_like.algorithms.text import pretraining
from stoix_like.language.words import WORDS
from stoix_like.networks.transformer.model import with_policy
from stoix_like.types import FIRST, LAST, MID

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## A world
#
# A secret number from 1 to 7, and three guesses. After a wrong one the world says whether the secret is higher or
# lower, and nothing else. The environment is like any other: `reset` and `step` are pure functions of one state.

# %%
NUMBERS, GUESSES = 7, 3
NOTHING, HIGHER, LOWER, RIGHT = range(4)  # what the world says


class State(NamedTuple):
    secret: jax.Array  # [] int32, 0 for the number 1
    said: jax.Array  # [] int32
    num_guesses: jax.Array  # [] int32


def reset(key):
    state = State(jax.random.randint(key, (), 0, NUMBERS), jnp.int32(NOTHING), jnp.int32(0))
    return state, timestep(state, FIRST)


def step(state, guess):
    hint = jnp.where(state.secret > guess, HIGHER, LOWER)
    said = jnp.where(state.secret == guess, RIGHT, hint).astype(jnp.int32)
    state = State(state.secret, said, state.num_guesses + 1)
    is_over = (said == RIGHT) | (state.num_guesses >= GUESSES)
    return state, timestep(state, jnp.where(is_over, LAST, MID))


def timestep(state, step_type):
    is_solved = (state.said == RIGHT).astype(jnp.float32)
    observation = sl.Observation(state.said[None].astype(jnp.float32), jnp.ones(NUMBERS, bool))
    discount = jnp.where(step_type == LAST, 0.0, 1.0)
    return sl.TimeStep(jnp.int8(step_type), is_solved, discount, observation, {})


env = sl.Environment(
    reset,
    step,
    sl.ActionSpec(NUMBERS),
    task_id="Guess",
    deterministic=True,
    time_limit=GUESSES,
    episode_metrics=lambda state, _: {"solve_rate": (state.said == RIGHT).astype(jnp.float32)},
)

# %% [markdown]
# ## Its text
#
# A state is written by look-up, inside the compiled program: `TEXTS` are all pieces that may be needed, and a function
# of the state gives the numbers of those that make it up. The spelling of the actions is what an answer is parsed by. A
# tokenizer of words takes those of the shipped worlds, which have the frame of a turn, and the new ones. Renderings are
# called `grid`, `coordinates` or `both`; a world without cells takes one of the names.

# %%
TEXTS = ("Guess a number from 1 to 7 .\n", "It is higher .\n", "It is lower .\n", "It is right .\n")
SPELLINGS = tuple(str(number) for number in range(1, NUMBERS + 1))
pieces = sl.Pieces(TEXTS, lambda state: state.said[None], longest=1)
prompts = {mode: sl.Prompt(("<guess>", f"<{mode}>")) for mode in ("base", "worldmodel")}
world = sl.TextWorld(env, {"coordinates": pieces}, SPELLINGS, prompts)
new_words = [text for text in (*TEXTS, *SPELLINGS) if text not in WORDS]
tokenizer = sl.word_tokenizer([*WORDS, *new_words], marks=["<guess>"])

# %% [markdown]
# ## Playing
#
# `sl.agent.rollout` plays whole episodes. Who answers is a `Speaker`. This one needs no model: it knows the form of an
# answer, and guesses at random. The tokens of an episode are printed as they stand in its slots.

# %%
SHAPE = {"rendering": "coordinates", "num_turns": GUESSES, "actions_per_turn": 1}
SHAPE |= {"hidden_dim": 48, "num_layers": 1 if FAST else 2}
agent = sl.agent.make_agent(world, tokenizer, sl.agent_config(**SHAPE, context="full", group_size=1))
lexicon = jax.tree.map(jnp.asarray, agent.lexicon)


@jax.jit
def play_at_random(keys):
    speaker = sl.agent.random_speaker(agent.dialogue, lexicon, agent.rules.slots, agent.rules.actions_per_turn)
    return sl.agent.rollout(agent.dialogue, lexicon, agent.rules, speaker, keys, keys)


keys = jax.random.split(jax.random.key(0), 64 if FAST else 4096)
episodes, worlds = play_at_random(keys)
print(tokenizer.to_text(np.asarray(episodes.tokens[0])[np.asarray(episodes.is_valid[0])]))

# %% [markdown]
# Two contexts are possible. With `full` a turn sees all turns before, its own guesses among them. With `single_turn` it
# sees the present one: its number and the hint. What the best player of each solves is counted by hand. With all turns,
# halving finds each of seven numbers in three guesses. With the present turn alone, the third guess knows one hint and
# not what it was about: 4 first, then 2 or 6, then one number for "higher" and one for "lower". That is 1 + 2 + 2 of
# the 7 numbers.

# %%
BEST = {"full": 1.0, "single_turn": 5 / 7}
solved_at_random = float((worlds.env_state.said == RIGHT).mean())
print(f"random guesses solve {solved_at_random:.3f}; with repetition {1 - (6 / 7) ** 3:.3f} are expected")

# %% [markdown]
# ## A base
#
# An untrained decoder never writes a valid answer, so learning begins with the format. `pretraining` teaches it from
# the speaker above, and nothing else: the base guesses at random. A learner is the same three functions as everywhere,
# and many updates are one `lax.scan`.


# %%
def train(learner, state, num_updates):
    update = jax.jit(lambda state: jax.lax.scan(lambda state, _: learner.update(state), state, length=num_updates))
    state, metrics = update(state)
    return state, jax.tree.map(np.asarray, metrics)


def pretrained(context):
    num_updates = 2 if FAST else 120
    config = sl.pretrain_config(
        **SHAPE,
        context=context,
        num_envs=32,
        num_updates=num_updates,
        num_minibatches=1,
        actor_lr=0.01,
        max_grad_norm=1.0,
        all_modes=False,
        all_renderings=False,
    )
    learner = pretraining.make(world, tokenizer, config)
    state, _ = train(learner, jax.jit(learner.init)(jax.random.key(0)), num_updates)
    return state.params


# %% [markdown]
# ## PPO over tokens
#
# An update plays an episode in each row, gives every token that the agent chose an advantage, and makes clipped steps.
# Tokens of the world and the forced beginning of an answer have no part in any loss. The bonus for the entropy of the
# guesses keeps other first guesses alive. With a weight of 0.02, the decoder that sees all turns settled on 5, from
# where six of seven numbers can be found; with 0.15, the other one stayed too random.


# %%
NUM_EPISODES, NUM_UPDATES = (8, 2) if FAST else (128, 300)
BONUS = {"full": 0.15, "single_turn": 0.02}


def trained(context, base):
    config = sl.agent_config(
        **SHAPE,
        context=context,
        num_envs=NUM_EPISODES,
        num_updates=NUM_UPDATES,
        group_size=1,
        num_minibatches=2,
        epochs=2,
        actor_lr=0.001,
        critic_lr=0.003,
        ent_coef=BONUS[context],
        entropy_of="answer",
        critic="shared",
    )
    learner = sl.token_ppo.make(world, tokenizer, config)
    state = jax.jit(learner.init)(jax.random.key(1))
    state = state._replace(params=with_policy(state.params, base))
    return train(learner, state, NUM_UPDATES)


params, solve_rates = {}, {}
for context, best in BEST.items():
    state, metrics = trained(context, pretrained(context))
    params[context], solve_rates[context] = state.params, metrics["actor/solve_rate_sum"] / NUM_EPISODES
    first, last = solve_rates[context][0], solve_rates[context][-10:].mean()
    print(f"{context:11}  solves {first:.2f} at first, {last:.2f} in the last updates; the best player {best:.2f}")

# %% alt="Solve rates of both contexts over the updates rise to the dashed lines of the best players."
figure, axes = plt.subplots(figsize=(6, 3.2))
for context, rates in solve_rates.items():
    (line,) = axes.plot(rates, label=context)
    axes.axhline(BEST[context], color=line.get_color(), linewidth=0.8, linestyle="--")
axes.set(xlabel="update", ylabel="solve rate", ylim=(0, 1.05))
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## What was learned
#
# Each secret once: the level of a number is a key that leads to it. `model_speaker` samples; the parameters are an
# argument, so the program compiles once.


# %%
def guesses_of(context):
    """[secrets, T] the number that each turn guessed, 0 where none was played or the answer was malformed."""
    config = sl.agent_config(**SHAPE, context=context, group_size=1)
    agent = sl.agent.make_agent(world, tokenizer, config, critic="shared")
    candidates = jax.random.split(jax.random.key(2), 256)
    secrets = jax.vmap(env.reset)(candidates)[0].secret
    keys = jnp.stack([candidates[jnp.argmax(secrets == number)] for number in range(NUMBERS)])

    @jax.jit
    def play(params, keys):
        speaker = sl.agent.model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, agent.rules.slots, 1.0)
        return sl.agent.rollout(agent.dialogue, lexicon, agent.rules, speaker, keys, keys)[0]

    episodes = play(params[context], keys)
    tokens = np.asarray(jnp.where(episodes.is_chosen, episodes.chosen, -1))
    rows = []
    for turns in tokens:
        answers = [tokenizer.to_text(turn[turn >= 0]).partition("<answer>")[2] for turn in turns]
        guesses = [answer.partition("</answer>")[0].strip() for answer in answers]
        rows.append([int(guess) if guess in SPELLINGS else 0 for guess in guesses])
    return np.array(rows)


for context in BEST:
    print(f"\n{context}")
    for secret, row in enumerate(guesses_of(context), start=1):
        print(f"  secret {secret}:", *(guess or "-" for guess in row))

# %% [markdown]
# Next: [agents that write](../language-agent.md) says what the loop records and which numbers show a collapse,
# [a text world in a page](../own-text-world.md) has a world with positions, and `python scripts/train_agent.py` is the
# same as a run with checkpoints and evaluations.
