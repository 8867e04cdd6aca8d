"""What `compare_search.py` refuses, before anything is played: one `error:` line, one `hint:` line, nothing written."""

import shlex
from pathlib import Path

import pytest
from support.exports import untrained_run
from support.transcripts import assert_shown, rows, transcripts

from stoix_like.runtime.hardware import devices

TASK = "probe/action_observation_reward"


@pytest.fixture
def run(inside):
    """A run of the smallest kind."""
    untrained_run(Path("runs/a"), task_id=TASK, num_envs=4, rollout_length=2, num_minibatches=1)


@pytest.mark.parametrize(
    ("flags", "error"),
    rows("""
--methods greedy,bestof => argument --methods: expected some of greedy,sampled,best_of,smc,distinct,plan,own, got
    'bestof'; did you mean 'best_of'?
--methods '' => argument --methods: expected some of greedy,sampled,best_of,smc,distinct,plan,own, got ''
--budgets 16,0 => argument --budgets: expected a positive whole number, got '0'
--budgets 16, => argument --budgets: expected a positive whole number, got ''
--temperature 0 => argument --temperature: expected a number above 0, or dual, got '0'
--temperature nan => argument --temperature: expected a number above 0, or dual, got 'nan'
--temperature learned => argument --temperature: expected a number above 0, or dual, got 'learned'
--bogus => unrecognized arguments: --bogus
"""),
)
def test_flags_are_refused_before_jax_starts(refused, monkeypatch, flags, error):
    monkeypatch.setattr(devices, "select", None)  # calling it would be a bug, with a traceback
    assert refused(2, "compare_search", "runs/a", *shlex.split(flags)) == [
        f"error: {error}",
        "hint: compare_search.py --help lists its arguments",
    ]


@pytest.mark.parametrize(
    ("code", "words", "lines"),
    transcripts("""
2$ compare_search runs/a --plot x.gif
error: x.gif: unknown figure format '.gif'
hint: use one of .png, .pdf, .svg
4$ compare_search runs/none
error: no run at runs/none
hint: train one first: python scripts/train_ppo.py
"""),
)
def test_figures_and_runs_are_refused_before_jax_starts(refused, monkeypatch, code, words, lines):
    monkeypatch.setattr(devices, "select", None)
    assert_shown(refused(code, *words), lines)


@pytest.mark.parametrize(
    ("code", "words", "lines"),
    transcripts("""
2$ compare_search
error: the following arguments are required: runs
hint: compare_search.py --help lists its arguments
4$ compare_search runs/a b
error: no run at b
hint: …
2$ compare_search a --level-set maze-64
error: evaluation.level_set: 'maze-64' is not a level set of probe/action_observation_reward
hint: its sets are named actionobservationreward-<number of levels>, for example actionobservationreward-2048
2$ compare_search a --temperature dual
error: --temperature: runs/a is a run of PPO, which learns none
hint: give a number, such as 0.005
4$ compare_search a --checkpoint newest
error: no checkpoint is named 'newest'
hint: …
"""),
)
def test_what_a_run_cannot_give(refused, run, code, words, lines):
    assert_shown(refused(code, *words), lines)
