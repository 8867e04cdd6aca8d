"""Runs of one process that share what the first of them has built and compiled."""

import pytest
from support.asserts import assert_same_bits
from support.scripted_runs import SMALL_PPO_RUN, flags, rows_of

from stoix_like.config.sections.runs import PPOConfig
from stoix_like.runtime.runs import saved
from stoix_like.runtime.runs.build import Prepared
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training.train import train

RUN = SMALL_PPO_RUN | {"num_eval_episodes": 0, "decay_learning_rates": "true"}


@pytest.fixture
def start(tmp_path):
    def run(name, prepared=None, *, resume=False, **leaves):
        words = flags(**RUN | {"save_dir": tmp_path, "run_name": name} | leaves)
        if resume:
            words = ["--resume", str(tmp_path / name), "--num-updates", str(leaves["num_updates"])]
        train("ppo", load_config(PPOConfig, "ppo", words, "ppo/quick"), quiet=True, prepared=prepared)
        return tmp_path / name

    return run


@pytest.mark.full
def test_they_are_as_runs_alone_each_with_the_numbers_of_its_own_configuration(start, monkeypatch):
    compiled, compile_chunk = [], chunk.compile_chunk
    monkeypatch.setattr(chunk, "compile_chunk", lambda *parts: compiled.append(parts) or compile_chunk(*parts))
    shared = Prepared()
    first = start("first", shared, num_updates=2)
    start("second", shared, num_updates=6)  # whose numbers are others
    start("first", shared, resume=True, num_updates=4)
    assert len(compiled) == 1
    alone = start("alone", num_updates=2)
    start("alone", resume=True, num_updates=4)
    assert_same_bits(*(saved.load_run(str(run), "latest").state for run in (first, alone)))
    assert rows_of(first, "TRAINER") == rows_of(alone, "TRAINER")
