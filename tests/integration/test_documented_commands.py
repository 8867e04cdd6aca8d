"""Every command and program of the pages in docs/ runs, in a copy of the project, one page after the other.

A page is played from top to bottom (see documented.py), with what a reader of it has: a trained run as `runs/latest`.
Sizes are cut by appended flags, and in the shipped sweep, which has none. What is not run is listed here, with the
reason. Left out as a whole:

- docs/tutorials and docs/reference are made from notebooks and from code, whose own tests run them;
- docs/log.md and docs/decisions are history: what was typed then need not work now.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket

import pytest
import yaml
from support.documented import ROOT, Clone, Cuts, blocks, commands, shortened
from support.marks import quick

from stoix_like.types import Learner

DOCS = ROOT / "docs"
LEFT_OUT = ("tutorials/", "reference/", "decisions/", "log.md")
SMALL = (
    "--num-envs 8 --rollout-length 8 --num-minibatches 2 --epochs 1 --hidden-dim 8 --num-updates 2"
    " --num-eval-envs 8 --num-eval-episodes 8 --observation-adapter dense"
)
SMALL_AGENT = (
    "--num-envs 8 --num-minibatches 2 --hidden-dim 16 --num-updates 2 --num-eval-episodes 4"
    " --num-layers 1 --num-turns 2 --num-shown-episodes 0"
)
#: A pipeline of SPA gets the sizes of the preset that is a pipeline in a minute.
SMALL_PIPELINE = " ".join(
    f"--{leaf.replace('_', '-')} {shlex.quote(value if isinstance(value, str) else json.dumps(value).replace(' ', ''))}"
    for section in yaml.safe_load((ROOT / "configs/spa/small/smoke.yaml").read_text()).values()
    for leaf, value in section.items()
)
SMALL_SEARCH = (
    f"{SMALL} --num-particles 2 --search-depth 2 --replay-buffer-size 256 --sample-sequence-length 4 --batch-size 4"
)
SMALL_SELF_PLAY = (
    "--num-envs 8 --rollout-length 8 --hidden-dim 8 --num-updates 2 --num-simulations 2 --replay-buffer-size 1024"
    " --batch-size 64 --num-eval-envs 8 --num-eval-episodes 8 --opponent random --anchors heuristic"
)
SMALL_LOOP = (
    "--num-envs 8 --rollout-length 8 --hidden-dim 8 --num-simulations 2 --replay-buffer-size 1024 --batch-size 64"
    " --selfplay-games 16 --shard-games 16 --most-pairs 4 --pairs-per-look 2 --match-anchors random"
    " --promotion-rule sprt --promotion-elo-0 -400 --promotion-alpha 0.49 --promotion-beta 0.49"
)
#: Flags of loops, whose games per batch have a name of their own in each.
SMALL_GAMES = SMALL_LOOP.replace("--selfplay-games 16 ", "") + " --max-iterations 1 --min-samples 0"
#: What the shipped sweep fixes in the copy: a sweep has no flags for the sizes of its trials.
SMALL_TRIALS = "".join(
    f"  {name[2:].replace('-', '_')}: {value}\n" for name, value in re.findall(r"(--\S+) (\S+)", SMALL)
)


def _free_port():
    """One below those that the system lends to whoever asks for any: it is still free when the page is tried."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


CUTS = Cuts(
    appended=[
        (r"^make ", "--dry-run"),  # the README's test runs what these come down to
        (r"--print-config|--resume|tasks\.py train", ""),
        (r"train_spo\.py", SMALL_SEARCH),
        (r"spa\.py run", SMALL_PIPELINE),
        (r"spa\.py report", ""),
        (r"train_agent\.py|spa\.py (pretrain|sft)", SMALL_AGENT),
        (r"train_alphazero\.py", SMALL_SELF_PLAY),
        (r"run_training_loop\.py", SMALL_LOOP),
        (r"run_continuous_training\.py", SMALL_GAMES),
        (r"master_loop\.py", f"{SMALL_GAMES} --games tic_tac_toe:2 --selfplay-games 16 --min-samples-to-trigger 0"),
        (r"scripts/ratings\.py --lineage", ""),  # plays nothing
        (r"scripts/(arena|ratings)\.py", "--openings 4"),
        (r"train\w*\.py|with_\w+\.py train-\w+", SMALL),
        (r"scripts/sweep\.py", "--num-trials 1"),
    ],
    replaced=[
        (":12345", f":{_free_port()}"),
        ("--num-updates 2000", "--num-updates 3"),
        *((f"--num-updates {n}00", f"--num-updates {n}") for n in (3, 4, 5, 6)),
        ("--num-envs 1024", "--num-envs 32"),
        ("--max-iterations 20", "--max-iterations 2"),
        ("--selfplay-games 1000", "--selfplay-games 16"),
        ("--config hex8:2 --config square8:4 --games 1000", "--config tic_tac_toe:2 --games 16 --cooldown 0"),
        ("-c tic_tac_toe:2 --cooldown 0 --num-simulations 8", "-c tic_tac_toe:2 --games 16 --cooldown 0"),
        *((f"mcts-{n}", "mcts-4") for n in (512, 128)),
        ("--selfplay-games 256", "--selfplay-games 16"),
        ("-c hex8:2 -c square8:3", "-c tic_tac_toe:2 --games 16 --cooldown 0"),  # hex8 is played by the other loop
        ("--task-id hex8 --opponent random --run-name ring-ppo", "--run-name ring-ppo"),
        ("0,1,8,32", "0,2"),
        ("--num-trials 40", "--num-trials 1"),
        ("--num-seeds 5", "--num-seeds 1"),
    ],
)
#: This page is about where values come from; the README trains with the same presets.
CUTS_OF = {"configuration.md": Cuts([(r"train_", "--print-config")], [])}
#: Why a command is not run: {pattern: (reason, the lines it leaves out)}.
NOT_RUN = {
    r"^pip install |mlflow-env": (
        "installs into an environment, or needs what was installed there: test_clean_install and test_telemetry_servers"
        " do",
        6,
    ),
    r"^(ssh|scp|while true; do ssh|for .*sbatch) ?": ("needs another machine", 5),
    r"--distributed": ("needs a cluster", 1),
    r"(master_loop|launch_daemons)\.py --(status|watch|continuous|stop)": (
        "ends with 1 where no loop runs, or not before it is stopped: test_loops does",
        6,
    ),
    r"localhost:5000": ("needs a server: test_telemetry_servers has one", 1),
    r"^wandb ": ("needs an account and a network", 2),
    r"^docker ": ("needs a Docker engine", 6),
    r"--device-type cuda": ("needs a GPU", 1),
}
#: A block of Python that is not run: (page, its first words, why that is no loss).
SHOWN = ("architecture.md", "class Learner(NamedTuple):", "it has the fields of types.Learner, which is tested")
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
PAGES = [page for page in PAGES if not page.startswith(LEFT_OUT)]


def text_of(page):
    return (DOCS / page).read_text()


def why_not(command):
    return next((pattern for pattern in NOT_RUN if re.search(pattern, command)), None)


def played(page):
    """[(language, line, code)] of what is run of a page."""
    found = []
    for block in blocks(text_of(page), "bash", "python"):
        code = block.code
        if block.language == "bash":
            cuts = CUTS_OF.get(page, CUTS)
            code = "\n".join(shortened(c, cuts) for c in commands(code) if not why_not(c))
        if code and not (page == SHOWN[0] and code.startswith(SHOWN[1])):
            found.append((block.language, block.line, code))
    return found


RUN = [page for page in PAGES if played(page)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, compile_cache):
    """The folder of runs that a reader has: one, of PPO on Maze-v0. Only copy it."""
    clone = Clone(tmp_path_factory.mktemp("trained"), compile_cache)
    clone.run(f"python scripts/train_ppo.py --config ppo/maze {SMALL}")
    return clone.path / "runs"


@pytest.fixture
def clone(tmp_path, trained, compile_cache):
    made = Clone(tmp_path, compile_cache)
    shutil.copytree(trained, made.path / "runs", symlinks=True)
    sweep = made.path / "configs" / "sweep" / "ppo_maze.yaml"
    fixed = f"{SMALL_TRIALS}  eval_interval: 1\n"
    sweep.write_text(re.sub(r"(?m)(?<=^fixed:\n)(?:  .*\n)+", fixed, sweep.read_text()))
    (tmp_path / "bin").mkdir()
    srun = tmp_path / "bin" / "srun"  # in a job of one task it runs what it is given, and so does this one
    srun.write_text('#!/bin/sh\nexec "$@"\n')
    srun.chmod(0o755)
    made.environment["PATH"] = f"{tmp_path / 'bin'}:{made.environment['PATH']}"
    return made


@pytest.mark.parametrize("page", quick(RUN, ("how-to/add-a-sink.md", "how-to/report.md")))
def test_what_a_page_tells_to_type_runs(page, clone):
    output = clone.play(page, played(page))
    assert output.count(f"--- {page}:") == len(played(page))


@pytest.mark.full
def test_a_wrong_flag_and_a_wrong_line_of_python_are_seen(clone):
    """The test above can fail: a flag that is not there, a program that does not hold what it says or does not wait."""
    with pytest.raises(AssertionError, match="unknown flag '--num-env'; did you mean '--num-envs'"):
        clone.play("wrong.md", [("bash", 3, "python scripts/train_ppo.py --num-env 8 --print-config")])
    with pytest.raises(AssertionError, match=r'File "wrong.md", line 7'):
        clone.play("wrong.md", [("python", 5, "x = 1\n\nassert x == 2\n")])
    seconds = "y = jax.jit(lambda x: jax.lax.fori_loop(0, 10_000, lambda _, x: x @ x, x))(x)\n"
    with pytest.raises(AssertionError, match=r"wrong\.md ends while the device computes"):
        clone.play("wrong.md", [("python", 9, "import jax\nx = jax.numpy.ones((256, 256))\n" + seconds)])


def test_what_is_not_run_is_listed_and_the_class_that_is_shown_has_the_fields_of_the_code():
    lines = [command for page in PAGES for block in blocks(text_of(page), "bash") for command in commands(block.code)]
    left_out = {pattern: [line for line in lines if why_not(line) == pattern] for pattern in NOT_RUN}
    expected = {pattern: number for pattern, (_, number) in NOT_RUN.items()}
    assert {pattern: len(found) for pattern, found in left_out.items()} == expected, left_out
    page, beginning, _ = SHOWN
    (shown,) = [block.code for block in blocks(text_of(page), "python") if block.code.startswith(beginning)]
    assert tuple(re.findall(r"^    (\w+):", shown, re.MULTILINE)) == Learner._fields


@pytest.mark.parametrize("page", PAGES)
def test_no_command_hides_in_a_block_that_is_not_run(page):
    """Transcripts begin their commands with `$`; tests/commands compares those of configuration.md."""
    others = [block for block in blocks(text_of(page)) if block.language not in ("bash", "python")]
    hidden = re.compile(r"^(python|pip|make|stoix-like|docker|ssh|wandb|mlflow|git) ", re.MULTILINE)
    assert [block.code for block in others if hidden.search(block.code)] == []
