"""What is said of a search before it is played: how, at what cost, and what may not have been meant."""

from types import SimpleNamespace

import pytest

from stoix_like.config.sections.runs import spo_config
from stoix_like.envs.probes import make_action_reward
from stoix_like.runtime.evaluators.policies import SearchChoice, describe_search, search_notes, select_policy
from stoix_like.runtime.runs.build import ALGORITHMS
from stoix_like.runtime.training.header import plan_line, replay_line
from stoix_like.search.model import SearchConfig
from stoix_like.types import Learner, Network

DEEP = SearchConfig(num_particles=16, search_depth="full", max_depth=4000, resampling="none")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (SearchConfig(), "16 x 4, root iid, sampled, resampling none"),  # its period is 4: never before the end
        (SearchConfig(resampling_period=2), "16 x 4, root iid, sampled, resampling every 2"),
        (SearchConfig(resampling="ess", root="topk"), "16 x 4, root topk, sampled, resampling ess"),
        (DEEP._replace(continuation="greedy"), "16 x full, root iid, greedy, resampling none"),
    ],
)
def test_a_search_is_described_as_it_is_played(config, words):
    assert describe_search(config, "learned temperature") == f"{words}, learned temperature"


def test_the_cost_of_a_decision_the_size_of_a_replay_and_what_may_not_have_been_meant():
    assert plan_line(SearchConfig()) == "search 16 particles × 4 steps = 64 model steps per decision"
    cost = "search 16 particles × at most 4,000 steps = at most 64,000 model steps per decision"
    assert plan_line(DEEP) == cost
    one = SearchConfig(num_particles=1, search_depth=1)
    assert plan_line(one) == "search 1 particle × 1 step = 1 model steps per decision"
    sizes = {"num_envs": 64, "rollout_length": 20, "epochs": 8, "num_minibatches": 2}
    config = spo_config(**sizes, batch_size=64, sample_sequence_length=19, replay_buffer_size=8192)
    line = "replay 8,192 steps (18 MB), each learned from 15.2 times on average"  # 16 * 64 * 19 / (64 * 20)
    assert replay_line(17_600_000, config, ALGORITHMS["spo"]) == line
    assert "(17.6 kB)" in replay_line(17_600, config, ALGORITHMS["spo"])
    assert search_notes(SearchConfig(), "Maze-v0") == []
    assert search_notes(DEEP._replace(max_depth=20), "BinPack-v2") == []
    (long,) = search_notes(DEEP, "Snake-v1")
    assert "may take 4,000 steps on Snake-v1" in long
    (alone,) = search_notes(SearchConfig(num_particles=1), "Maze-v0")
    assert "has no choice" in alone
    assert search_notes(SearchConfig(num_particles=1), "Maze-v0", follows_plan=True) == []  # it keeps the best path


@pytest.mark.parametrize("choice", [None, SearchChoice(depth=2)])
@pytest.mark.parametrize(("hidden", "said"), [(None, False), ("where the mines are", True)])
def test_a_search_that_sees_what_is_hidden_is_named_so(choice, hidden, said):
    saved = SimpleNamespace(
        env=make_action_reward()._replace(hidden_state=hidden),
        network=Network(*[lambda *_: None] * 4),
        config=spo_config(search_depth=2),
        meta=SimpleNamespace(algorithm="spo"),
        learner=Learner(None, None, policy=len, network_policy=id),
        network_params=lambda params: params,
    )
    assert (select_policy(saved, choice, False, True).hidden_state == "where the mines are") == said
    assert select_policy(saved, None, True, True).name == "network"
