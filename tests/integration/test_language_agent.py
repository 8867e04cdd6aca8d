"""A language agent from nothing, by a user's commands: pretraining, PPO over tokens from it, scores, its episodes."""

import json
import re
import subprocess
import sys

import pytest
from support.marks import full
from support.paths import ROOT

SPEECH = (ROOT / "tests/support/sharded_speech.py").read_text()

SMALL = (
    "--hidden-dim 16 --num-layers 1 --num-heads 2 --num-turns 2 --num-envs 8 --num-minibatches 2 --num-updates 2"
    " --num-eval-episodes 4 --num-eval-samples 2 --save-dir runs"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the runs `base` and `agent`."""
    folder = tmp_path_factory.mktemp("agent")
    own = "--num-shown-episodes 0 --no-all-modes --no-all-renderings"
    shown, err = script(folder, f"spa.py pretrain {SMALL} {own} --run-name base")
    assert re.search(r"format: 0\.\d{3} of the answers are well-formed; they solve 0\.\d{3} of the levels,", shown)
    assert (
        "warning: agents learn from a model with 0.98 on; train longer with --resume runs/base --num-updates 4" in err
    )
    own = "--critic separate --group-size 4 --num-shown-episodes 2"
    script(folder, f"train_agent.py {SMALL} --load-path base {own} --run-name agent")
    return folder


def script(folder, line, code=0):
    """(standard output, standard error) of a script, which ends with this code."""
    name, *rest = line.split(" ")
    command = [sys.executable, str(ROOT / "scripts" / name), *rest]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout, done.stderr


def test_a_run_tells_what_it_did_and_goes_on(folder):
    rows = [json.loads(line) for line in (folder / "runs/agent/metrics.jsonl").read_text().splitlines()]
    last = {name: value for row in rows for name, value in row.items()}
    assert last["timesteps"] == 2 * 8  # episodes
    for name in ("actor/generated_tokens_max", "trainer/trained_tokens_max", "actor/well_formed", "trainer/entropy"):
        assert last[name] >= 0
    assert 0 <= last["evaluator/pass_at_1"] <= last["evaluator/pass_at_2"] <= 1
    shown, _ = script(folder, "train_agent.py --resume agent --num-updates 3")
    assert "update 3/3" in shown
    assert "play_text.py --model" in shown
    samples = folder / "runs/agent/samples"
    assert sorted(path.name for path in samples.iterdir()) == [
        f"00000{n}.{kind}" for n in (2, 3) for kind in ("html", "txt")
    ]
    first, second = ((samples / f"00000{n}.txt").read_text() for n in (2, 3))
    assert first.count("── episode") == second.count("── episode") == 2
    state = first.split("\n\n")[0]  # what the world wrote of the first level
    assert "Turn 1" in state
    assert second.startswith(state)
    assert not (folder / "runs/base/samples").exists()


def test_scores_and_episodes_of_a_run(folder):
    shown, _ = script(folder, "evaluate.py agent --num-episodes 4")
    assert "pass_at_2" in shown
    assert "who sees the outcome of every turn" in shown
    shown, _ = script(folder, "play_text.py --model agent --episodes 2 --out page.html")
    assert shown.count("── episode") == 2
    page = (folder / "page.html").read_text()
    assert page.count("<h2>") == 2
    assert "advantage" in page
    assert "<script" not in page
    shown, _ = script(folder, "play_text.py --model base --task-id Sokoban-text-v0 --episodes 1")
    assert " # " in shown
    pages = [path.name for path in (folder / "runs/base").glob("*.html")]
    assert pages == ["episodes-Sokoban-text-v0.html"]  # that of its own world is another


SWEEP = """
algorithm: agent
metric: evaluator/pass_at_2
num_trials: 2
fixed: {
  load_path: base, hidden_dim: 16, num_layers: 1, num_heads: 2, num_turns: 2, num_envs: 8, num_minibatches: 2,
  num_microbatches: 1, num_updates: 2, eval_interval: 1, num_eval_episodes: 4, num_eval_samples: 2
}
space: {actor_lr: {low: 1e-4, high: 1e-2, log: true}}
"""


@pytest.mark.full
def test_a_sweep_trains_agents_from_one_base(folder):
    pytest.importorskip("optuna", reason="needs the 'sweep' extra")
    (folder / "rates.yaml").write_text(SWEEP)
    (folder / "other.yaml").write_text(SWEEP.replace("load_path: base", "load_path: agent"))
    (folder / "wrong.yaml").write_text(SWEEP.replace("pass_at_2", "pass_at_4"))
    (folder / "none.yaml").write_text(SWEEP.replace("load_path: base", "load_path: bose"))
    assert "did you mean 'pass_at_2'?" in script(folder, "sweep.py wrong.yaml", 2)[1]
    assert "no run at bose; did you mean 'base'?" in script(folder, "sweep.py none.yaml", 4)[1]
    script(folder, "sweep.py rates.yaml")
    trials = json.loads((folder / "runs/rates/trials.json").read_text())["trials"]
    assert [trial["state"] for trial in trials] == ["complete", "complete"]
    begins = [(folder / f"runs/rates/trial-000{n}.log").read_text() for n in (0, 1)]
    assert all("starts with the network (pretraining) of" in log for log in begins)
    _, err = script(folder, "sweep.py other.yaml --study rates", 2)
    assert 'load_path is "agent", and was "base" when the study began' in err


@pytest.mark.full
def test_a_run_that_is_held_to_its_base_reads_it_again_when_it_goes_on(folder):
    own = "--num-microbatches 1 --num-shown-episodes 0 --group-size 4 --kl-coef 0.5 --rollout-filter-ratio 0.5"
    script(folder, f"train_agent.py {SMALL} {own} --load-path runs/base --run-name held")
    script(folder, "train_agent.py --resume held --num-updates 3")
    rows = [json.loads(line) for line in (folder / "runs/held/metrics.jsonl").read_text().splitlines()]
    found = [row["trainer/reference_kl"] for row in rows if "trainer/reference_kl" in row]
    assert len(found) == 3
    assert min(found) >= 0.0 < max(found)
    (folder / "runs/base").rename(folder / "moved")
    try:
        _, err = script(folder, "train_agent.py --resume held --num-updates 4", 4)
    finally:
        (folder / "moved").rename(folder / "runs/base")
    assert "no run at runs/base" in err


@pytest.mark.full
def test_two_seeds_are_trained_from_one_base_side_by_side(folder):
    """Both learn as if alone."""
    own = "--num-microbatches 1 --load-path base --num-shown-episodes 0"
    shown, err = script(folder, f"train_agent.py {SMALL} {own} --num-seeds 2 --run-name two")
    assert "note: only 0." in shown + err
    script(folder, f"train_agent.py {SMALL} {own} --seed 1 --run-name second")
    rows = [json.loads(line) for line in (folder / "runs/two/metrics.jsonl").read_text().splitlines()]
    alone = [json.loads(line) for line in (folder / "runs/second/metrics.jsonl").read_text().splitlines()]
    losses = [
        [row["trainer/policy_loss"] for row in found if row.get("seed") == 1 and "trainer/policy_loss" in row]
        for found in (rows, alone)
    ]
    assert len(losses[0]) == 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    with_three = f"train_agent.py {SMALL} {own.replace('base', 'two')} --num-seeds 3"
    assert "are of 2 seeds, and this run trains 3" in script(folder, with_three, 4)[1]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("evaluate.py agent --search-particles 4", "--search-particles: runs/agent writes its actions as text"),
        ("animate.py agent", "animate: runs/agent writes its actions as text"),
        ("compare_search.py agent", "compare-search: runs/agent writes its actions as text"),
        ("export_policy.py agent", "export: runs/agent writes its actions as text"),
        ("train_agent.py --load-path base --hidden-dim 24 --num-heads 2", "base"),
        full(
            f"train_agent.py {SMALL.replace('heads 2', 'heads 4')} --load-path base", "num_heads 2, and this run has 4"
        ),
        ("train_ppo.py --config ppo/frozen_lake --load-path base", "only one of the two is a language model"),
        ("spa.py finetune", "no stage 'finetune'"),
    ],
)
def test_what_a_language_run_cannot_do_is_said_in_one_line(folder, line, what):
    name, _, rest = line.partition(" ")
    command = [sys.executable, str(ROOT / "scripts" / name), *rest.split()]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    assert done.returncode != 0
    errors = [text for text in done.stderr.splitlines() if text.startswith("error:")]
    assert len(errors) == 1
    assert what in errors[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("context", [full("single_turn"), "full"])
def test_four_devices_sample_the_tokens_of_one(scripts, context):
    found = json.loads(scripts.python(SPEECH, ROOT / "tests", context))
    assert found == {"devices": [1, 4], "samples": 1008, "same": 1008}
