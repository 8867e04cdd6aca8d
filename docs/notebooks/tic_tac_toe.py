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
# # Self-play as pure functions
#
# AlphaZero learns a game from its rules, by playing against itself with a search. Here everything it consists of is a
# pure function: the game, the players, one update of training, a match, the ratings. This notebook trains a network for
# tic-tac-toe in seconds, rates what it was on the way, and looks whether the last one can still be beaten.
#
# It is a Python file in jupytext's percent format. Run it as a script (`python docs/notebooks/tic_tac_toe.py`), open it
# in an editor that knows the format, or make a notebook of it with `jupytext --to ipynb docs/notebooks/tic_tac_toe.py`.
# With `STOIX_LIKE_FAST=1` the budgets shrink to what the tests run.

# %%
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import stoix_like as sl

FAST = os.environ.get("STOIX_LIKE_FAST") == "1"
RATED = (0, 1, 2) if FAST else (0, 2, 4, 8, 16, 32)  # updates after which the network is kept
NUM_UPDATES = RATED[-1]
plt.rcParams["figure.dpi"] = 80

# %% [markdown]
# ## A game
#
# A `BoardGame` is a tuple of functions over one state. `vmap` makes many games of one; there is nothing else to it.
# Outcomes are per player, so a game of three would look the same.

# %%
game = sl.make_game("tic_tac_toe")
step = jax.jit(game.step)

state = game.init()
for action in (4, 0, 2, 8, 6):  # the centre, a corner, ...
    state = step(state, action)
cells = np.asarray(game.cells(state)).reshape(game.layout.shape)
print("\n".join(" ".join(".XO"[owner + 1] for owner in row) for row in cells))
print("over:", bool(game.is_over(state)), "  outcome of X and O:", np.asarray(game.outcome(state)))

# %% [markdown]
# ## A learner
#
# `sl.make_env` joins the game to an opponent and is what evaluations play; here only the network is made from it. The
# learner is made from the game itself. It has the three functions that every learner has.

# %%
env = sl.make_env("tic_tac_toe")
config = sl.alphazero_config(
    task_id="tic_tac_toe",
    num_envs=16 if FAST else 128,
    rollout_length=16,
    num_updates=NUM_UPDATES,
    hidden_dim=16 if FAST else 128,
    actor_lr=2e-3,
    critic_lr=2e-3,
    vf_coef=1.0,
    max_grad_norm=1.0,
    tau=0.02,
    num_simulations=4 if FAST else 16,
    temperature_plies=9,
    replay_buffer_size=1024 if FAST else 16384,
    batch_size=64 if FAST else 512,
)
network = sl.make_network(env, config)
learner = sl.alphazero.make(game, network, config)
update = jax.jit(learner.update)

# %% [markdown]
# One update plays 16 plies of every game, each after a search of 16 simulations, keeps the positions of games that have
# ended, and learns from each about four times. The metrics say what the search adds to the network (`search_kl`), how
# often both prefer the same move, and how the games end.

# %%
state = jax.jit(learner.init)(jax.random.key(0))
versions = {0: state.params.average}  # the weights that play, by update
for index in range(1, NUM_UPDATES + 1):
    state, metrics = update(state)
    if index in RATED:
        versions[index] = state.params.average
        num_games, draws = metrics["actor/episodes_count"], metrics["actor/draw_sum"]
        kl, agreement = metrics["trainer/search_kl"], metrics["trainer/search_agreement"]
        print(f"update {index:2}   {draws / num_games:4.0%} drawn   search_kl {kl:.3f}   agreement {agreement:.0%}")

# %% [markdown]
# ## Players
#
# A player is a function `(params, states, key) -> actions`. The network alone, the network with a search, plain tree
# search without a network, and random moves are all of this form. Parameters are arguments, so another version of a
# network compiles nothing.

# %%
model = sl.gumbel.GameModel(game, network.actor_critic)
searching = sl.players.gumbel_player(
    model, sl.gumbel.GumbelConfig(num_simulations=config.alphazero.num_simulations, gumbel_scale=0.0)
)
engines = {"random": sl.players.random_player(game), "heuristic": sl.players.heuristic_player(game)}
if not FAST:
    engines["mcts-128"] = sl.players.mcts_player(game, 128)

# %% [markdown]
# ## A match
#
# Players without randomness would repeat one game for ever, so a match begins from openings: all positions after two
# plies, up to the symmetries of the board. Each is played from both seats. What an opening favours cancels within the
# pair, and the interval counts pairs.

# %%
book = sl.openings.openings(game, 2)
print(f"{len(book.moves)} openings of {book.plies} plies, hash {book.hash}")


def make_match(player_a, player_b):
    """The compiled match (params of A, params of B, key) -> results, of two players."""
    return jax.jit(lambda a, b, key: sl.matches.play_pairs(game, player_a, player_b, a, b, book.moves, key))


matches = {name: make_match(searching, engine) for name, engine in engines.items()}
last = max(versions)
for name, match in matches.items():
    summary = sl.matches.summarize(match(versions[last], None, jax.random.key(1)))
    low, high = summary.score.low, summary.score.high
    print(f"against {name:9}  score {summary.score.point:.3f} [{low:.3f}, {high:.3f}]  lost {summary.losses}")

# %% [markdown]
# ## Ratings
#
# Every version plays every engine, and the version before it. One Bradley-Terry fit over all matches gives ratings with
# intervals; the heuristic player is fixed at 1000. A record says how much its pairs varied and what it scored from
# each opening, on which the widths of the intervals depend.

# %%
between = make_match(searching, searching)
key = jax.random.key(2)

records = []
for index, params in versions.items():
    for name, match in matches.items():
        results = match(params, None, key)
        records.append(sl.ratings.match_record(f"update {index}", name, results.score))
for before, after in zip(versions, list(versions)[1:], strict=False):
    results = between(versions[after], versions[before], key)
    records.append(sl.ratings.match_record(f"update {after}", f"update {before}", results.score))

table = sl.ratings.rate(records, {"heuristic": 1000.0}, mean=1000.0)
for row in table.rows:
    print(f"{row.name:10}  {row.rating:6.0f}  [{row.low:5.0f}, {row.high:5.0f}]  {row.games:4.0f} games")

# %% alt="Ratings of the versions over the updates, with intervals, rise above the engines, which are horizontal lines."
rated = {row.name: row for row in table.rows}
updates = list(versions)
ratings = np.array([rated[f"update {index}"][1:4] for index in updates])  # [versions, 3]
figure, axes = plt.subplots(figsize=(6, 3.2))
axes.plot(updates, ratings[:, 0], marker="o", label="16 simulations")
axes.fill_between(updates, ratings[:, 1], ratings[:, 2], alpha=0.2)
for name in engines:
    axes.axhline(rated[name].rating, color="grey", linewidth=0.8, linestyle="--")
    side = "top" if name == "heuristic" else "bottom"
    axes.annotate(name, (updates[-1], rated[name].rating), ha="right", va=side, color="grey")
axes.set(xlabel="update", ylabel="Elo")
axes.legend(loc="center right")
plt.show()

# %% [markdown]
# ## Can it be beaten?
#
# Some openings are lost already, so a match says little about the first position. Tic-tac-toe is small enough to ask
# every opponent at once: the search plays without noise and answers a position always in the same way, and the opponent
# tries every move. This is a tree of some hundred games. `front` holds the positions in which the opponent is to move;
# it is filled up to one size, so that the search compiles once.


# %%
WIDEST = 945  # 9 * 7 * 5 * 3 * 1 moves of the opponent


@jax.jit
def answered(params, states):
    """(states after the network's move, or as they are where the game is over; is over [N]; outcome [N, P])."""
    moved = jax.vmap(game.step)(states, searching(params, states, jax.random.key(0)))
    over = jax.vmap(game.is_over)(states)
    states = jax.tree.map(lambda a, b: jnp.where(over.reshape(-1, *[1] * (a.ndim - 1)), a, b), states, moved)
    return states, jax.vmap(game.is_over)(states), jax.vmap(game.outcome)(states)


def answer(params, states):
    """`answered` for any number of states up to WIDEST, on the host."""
    num_states = len(states.player)
    filled = jax.tree.map(lambda x: np.resize(x, (WIDEST, *x.shape[1:])), states)
    return jax.tree.map(lambda x: np.asarray(x)[:num_states], answered(params, filled))


def rows(states, index):
    """The states [N, ...] at the index, an array of numbers or of bools [N]."""
    return jax.tree.map(lambda x: x[index], states)


def all_games(params, opponent):
    """(games, games that the opponent wins) over all of its ways to play from the seat `opponent`."""
    front = jax.tree.map(lambda x: np.asarray(x)[None], game.init())
    front = front if opponent == 0 else answer(params, front)[0]
    num_games, num_lost = 0, 0
    while len(front.player):
        parents, actions = np.nonzero(front.cells < 0)
        moved = jax.vmap(game.step)(rows(front, parents), actions)
        front, over, outcome = answer(params, moved)
        num_games += over.sum()
        num_lost += (outcome[over, opponent] > 0).sum()
        front = rows(front, ~over)
    return num_games, num_lost


for index in (0, last):
    for opponent in (0, 1):
        num_games, num_lost = all_games(versions[index], opponent)
        print(f"update {index:2}, opponent plays {'XO'[opponent]}: {num_games:3} games, lost {num_lost}")
        assert FAST or index == 0 or num_lost == 0

# %% [markdown]
# `python scripts/train_alphazero.py --task-id tic_tac_toe` is the same as a run with checkpoints, and
# `python scripts/ratings.py RUN` rates it. Next: [AlphaZero's training loop](../alphazero-training-loop.md) says where
# each detail comes from, [how to play and measure board games](../how-to/board-games.md) what the commands do, and
# [add a game](../how-to/add-a-game.md) how to bring your own.
