"""Gumbel search of any number of players against one in plain Python, and side by side under `vmap`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full
from support.small_games import Table, three_players, two_players

from stoix_like.search import game_tree, gumbel, halving, mcts
from stoix_like.search.gumbel import GameModel, GumbelConfig


class Opinions(NamedTuple):
    """A network as tables of the positions, of values by player of the game."""

    logits: np.ndarray  # [S, A]
    values: np.ndarray  # [S, P]

    def evaluate(self, table):
        """The function of a model: values from the mover on."""
        num_players = table.outcome.shape[1]
        order = (table.player[:, None] + np.arange(num_players)) % num_players
        relative = jnp.asarray(np.take_along_axis(self.values, order, axis=1))

        def evaluate(params, observation):
            index = observation.agent_view[:, 0]
            return params + jnp.asarray(self.logits)[index], relative[index]

        return evaluate


def opinions_on(table: Table, seed: int) -> Opinions:
    draw = np.random.default_rng(seed)
    values = draw.uniform(-1, 1, table.outcome.shape).astype(np.float32)
    return Opinions(draw.normal(size=table.legal.shape).astype(np.float32), values - values.mean(axis=1, keepdims=True))


class Node:
    """A position in the tree of `PlainSearch`: the mean of the outcomes that came through is sums / visits."""

    def __init__(self, position: int, num_players: int):
        self.position, self.children = position, {}
        self.visits, self.sums = 0, np.zeros(num_players)


class PlainSearch:
    """One search without noise, as the paper writes it: formulas 7, 8 and 10 to 12, with mixed values."""

    def __init__(self, table: Table, opinions: Opinions, root: int, config: Any, schedule: list[int]):
        self.table, self.opinions, self.config = table, opinions, config
        self.root = self.node(root)
        for considered in schedule:
            self.simulate(considered)

    def node(self, position):
        return Node(position, self.table.outcome.shape[1])

    def legal(self, node):
        return np.flatnonzero(self.table.legal[node.position]).tolist()

    def visits(self, node, action):
        return node.children[action].visits if action in node.children else 0

    def q_value(self, node, action):
        child = node.children[action]
        return child.sums[self.table.player[node.position]] / child.visits

    def policy(self, logits):
        total = sum(math.exp(x) for x in logits.values())
        return {action: math.exp(x) / total for action, x in logits.items()}

    def improved_logits(self, node):
        """{legal action: logit + sigma(completed q-value)}."""
        logits = {a: float(self.opinions.logits[node.position, a]) for a in self.legal(node)}
        prior, tried = self.policy(logits), list(node.children)
        mixed = float(self.opinions.values[node.position, self.table.player[node.position]])
        if tried:
            mean = sum(prior[a] * self.q_value(node, a) for a in tried) / sum(prior[a] for a in tried)
            total = sum(self.visits(node, a) for a in tried)
            mixed = (mixed + total * mean) / (1 + total)
        most = max((self.visits(node, a) for a in tried), default=0)
        scale = self.config.value_scale * (self.config.maxvisit_init + most)
        return {a: x + scale * (self.q_value(node, a) if a in tried else mixed) for a, x in logits.items()}

    def interior_action(self, node):
        policy = self.policy(self.improved_logits(node))
        total = sum(self.visits(node, a) for a in node.children)
        return max(policy, key=lambda action: policy[action] - self.visits(node, action) / (1 + total))

    def root_action(self, considered):
        logits = self.improved_logits(self.root)
        return max((a for a in logits if self.visits(self.root, a) == considered), key=lambda a: logits[a])

    def simulate(self, considered):
        path, action = [self.root], self.root_action(considered)
        while action in path[-1].children:
            path.append(path[-1].children[action])
            if self.table.is_over[path[-1].position]:
                break
            action = self.interior_action(path[-1])
        leaf = path[-1]
        if not self.table.is_over[leaf.position]:
            leaf = self.node(int(self.table.next[leaf.position, action]))
            path[-1].children[action] = leaf
            path.append(leaf)
        is_over = self.table.is_over[leaf.position]
        found = (self.table.outcome if is_over else self.opinions.values)[leaf.position]
        for node in path:
            node.visits, node.sums = node.visits + 1, node.sums + found


@pytest.mark.parametrize(
    ("game_of", "num_simulations"), [(three_players, 40), full(three_players, 7), full(two_players, 40)]
)
def test_every_simulation_is_that_of_a_plain_search(game_of, num_simulations):
    """Three actions compared: 40 simulations in 2 phases, of 6 rounds of three, then rounds of two."""
    table, game, roots = game_of()
    opinions, config = opinions_on(table, 0), GumbelConfig(num_simulations, gumbel_scale=0.0)
    model = GameModel(game, opinions.evaluate(table))
    output = jax.jit(lambda s: gumbel.search(model, 0.0, jax.random.key(0), s, config))(jnp.asarray(roots, jnp.int32))
    for row, root in enumerate(roots):
        schedule = halving.considered_visits(int(table.legal[root].sum()), num_simulations).tolist()
        plain = PlainSearch(table, opinions, int(root), config, schedule)
        visits = [plain.visits(plain.root, a) for a in range(3)]
        assert output.visits[row].tolist() == visits
        q_values = [plain.q_value(plain.root, a) if visits[a] else 0.0 for a in range(3)]
        np.testing.assert_allclose(output.q_values[row], q_values, atol=1e-5)
        policy = plain.policy(plain.improved_logits(plain.root))
        np.testing.assert_allclose(output.action_weights[row], [policy.get(a, 0.0) for a in range(3)], atol=1e-5)
        assert int(output.action[row]) == plain.root_action(max(visits))
        assert output.network_values[row, 0] == opinions.values[root, table.player[root]]


def test_the_schedule_of_sequential_halving_by_hand():
    """Four actions and 16 simulations: two rounds of four, then of the better two 4 rounds. 5 actions: 3 phases."""
    assert halving.considered_visits(4, 16).tolist() == [0] * 4 + [1] * 4 + [2, 2, 3, 3, 4, 4, 5, 5]
    assert halving.considered_visits(5, 10).tolist() == [0] * 5 + [1, 1, 2, 2, 3]
    assert halving.considered_visits(1, 3).tolist() == [0, 1, 2] == gumbel.considered_visits(0, 3).tolist()
    assert halving.considered_visits(8, 3).tolist() == [0, 0, 0]


def together_and_alone(search, params, keys, roots):
    """(leaves of the search vmapped over params, keys and roots [V, B], the same of each alone)."""
    together = jax.jit(jax.vmap(search))(params, keys, roots)
    one = jax.jit(search)
    alone = [one(jax.tree.map(lambda x, i=i: x[i], params), keys[i], roots[i]) for i in range(len(keys))]
    return jax.tree.leaves(together), jax.tree.leaves(jax.tree.map(lambda *x: jnp.stack(x), *alone))


@pytest.mark.full
@pytest.mark.parametrize("num_rows", [8, full(1)])
def test_searches_side_by_side_are_separate_searches(num_rows):
    table, game, roots = three_players()
    model = GameModel(game, opinions_on(table, 0).evaluate(table))
    params = jnp.arange(2.0)[:, None, None] * jnp.array([[[0.0, 0.5, 1.0]]])  # [V, 1, A]: a network each
    starts = jnp.asarray(roots, jnp.int32)[: 2 * num_rows].reshape(2, num_rows)

    def search(params, key, states):
        return gumbel.search(model, params, key, states, GumbelConfig(24))

    keys = jax.random.split(jax.random.key(0))
    together, alone = together_and_alone(search, params, keys, starts)
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_vmaps_within_each_other_and_over_some_arguments_alone_add_the_same():
    """Two rows of three nodes: 2 under 1 under 0, and 2 under 0. Mapped twice over the leaves, or not over trees."""
    tree = (jnp.zeros((1, 3, 2)), jnp.zeros((1, 3, 2, 1)), jnp.array([[[0, 0], [0, 0], [1, 0]]]))
    add = jax.jit(jax.vmap(jax.vmap(game_tree._add_along_paths, (None, None, None, 0, 0)), (None, None, None, 0, None)))
    leaves = jnp.array([[[2, 2], [1, 0]], [[0, 1], [2, 1]]])[:, :, None]  # [2, 2, 1, B]
    outcomes = jnp.array([[0.5, 2.0], [-1.0, 3.0]])[:, None, :, None]  # [2, 1, B, 1]
    visits, sums = add(*tree, leaves, outcomes)
    counted = np.array(
        [[[[1, 1], [1, 0], [1, 1]], [[1, 1], [1, 0], [0, 0]]], [[[1, 1], [0, 1], [0, 0]], [[1, 1], [1, 1], [1, 0]]]]
    )
    np.testing.assert_array_equal(visits[:, :, 0], counted)
    np.testing.assert_array_equal(sums[:, :, 0, :, :, 0], counted * np.array([[0.5, 2.0], [-1.0, 3.0]])[None, :, None])


def whole_trees_chosen(search, args, num_nodes):
    """Choices between arrays that have the trees' number of nodes among their axes, in the program before XLA."""
    text = jax.jit(search).lower(*args).as_text()
    return [line for line in text.splitlines() if "stablehlo.select" in line and f"x{num_nodes}x" in line]


@pytest.mark.parametrize("kind", ["gumbel", full("mcts")])
def test_nothing_selects_between_whole_trees_under_vmap(kind, monkeypatch):
    """Of 38 nodes; without the rule for `vmap` of the walk up the program does, so the test can fail."""
    table, game, roots = three_players()
    model = GameModel(game, opinions_on(table, 0).evaluate(table))

    def search(key, states):
        if kind == "mcts":
            return mcts.search(game, key, states, 37).visits
        return gumbel.search(model, 0.0, key, states, GumbelConfig(37)).visits

    args = jax.random.split(jax.random.key(0), 3), jnp.asarray(roots[:3], jnp.int32)[:, None]
    assert whole_trees_chosen(jax.vmap(search), args, 38) == []
    monkeypatch.setattr(game_tree, "_add_along_paths", game_tree._add_along_paths.fun)
    assert len(whole_trees_chosen(jax.vmap(search), args, 38)) >= 2
