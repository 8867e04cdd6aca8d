"""What bad input gets: one `error:` line, one `hint:` line, the exit code, nothing written and nothing lost."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from support.marks import full
from support.paths import ROOT, all_below, load_script
from support.scripted_runs import flags
from support.transcripts import assert_shown, transcripts

import stoix_like as sl
from stoix_like.commands.entry import exit_code
from stoix_like.config.checks.access import replace_leaves
from stoix_like.config.dicts import config_to_dict
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs import folder as run_folder
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.build import build
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.initial_params import find_initial_params
from stoix_like.runtime.runs.saved import state_template
from stoix_like.runtime.storage.lock import RunLock
from stoix_like.runtime.training import chunk, start

TASK = "probe/action_observation_reward"
SMALL = {"task_id": TASK, "num_envs": 8, "rollout_length": 4, "num_minibatches": 2, "epochs": 1, "hidden_dim": 8}
SMALL |= {"num_updates": 4, "num_eval_envs": 8, "num_eval_episodes": 8}
DAMAGED_HINT = (
    "hint: it is damaged or foreign: move its folder away to --resume from the one before; to evaluate another:"
    " python scripts/evaluate.py RUN --checkpoint N"
)


pytestmark = pytest.mark.usefixtures("inside")


def _train_flags(**leaves):
    return flags(**SMALL | {"run_name": "new"} | leaves)


def _written_out(words):
    """The words of a command; NEW is a new small run, but for the leaves given after it."""
    if "NEW" not in words:
        return words
    script, _, *argv = words
    names = [flag[2:].replace("-", "_") for flag in argv[::2]]
    return [script, *_train_flags(**dict(zip(names, argv[1::2], strict=True)))]


@functools.cache
def _template():
    config = sl.ppo_config(**SMALL)
    return config, state_template(build("ppo", config).learner, 1)


def _filled(leaf):
    """An array of that form that does not compress to nothing."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.zeros((*leaf.shape, 2), jnp.uint32))
    return jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape).astype(leaf.dtype)


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A run folder with whole checkpoints of updates 1 and 2 and a best one, made without training."""
    config, template = _template()
    path = tmp_path_factory.mktemp("saved") / "a"
    config = replace_leaves(config, {"run_name": "a"})
    run_folder.create_run(path, to_yaml(config), {}).lock.close()
    state = jax.tree.map(_filled, template)
    meta = CheckpointMeta("ppo", TASK, 1, config_to_dict(config), {})
    store = CheckpointStore(path / "checkpoints", create=True)
    for update in (1, 2):
        store.save(state._replace(step=jnp.int32(update)), meta._replace(update=update))
    best = CheckpointStore(path / "checkpoints" / "best", create=True)
    best.save({"params": state.params}, meta._replace(host={"scores": [0.5], "updates": [1]}))
    (path / "metrics.jsonl").write_text(json.dumps({"category": "MISC", "update": 0}) + "\n")
    return path


@pytest.fixture
def run(saved, tmp_path):
    """A copy of that run as runs/a."""
    return Path(shutil.copytree(saved, "runs/a"))


@pytest.mark.parametrize(
    ("code", "words", "lines"),
    transcripts("""
3$ train_ppo NEW --task-id Maze-v9
error: unknown task 'Maze-v9'; did you mean 'Maze-v0'?
hint: known tasks: BinPack-v0, BinPack-v2, …
3$ train_ppo --task-id ''
error: unknown task ''
hint: known tasks: …
3$ train_ppo --task-id=
error: unknown task ''
hint: known tasks: …
3$ train_ppo NEW --task-id Sokoban-v0
error: Sokoban-v0 downloads its levels from the Hugging Face hub, and nothing is downloaded here
hint: use Sokoban-text-v0, or --kwargs '{generator: toy}' or '{generator: simple}': small sets of Jumanji
3$ train_ppo NEW --task-id SearchAndRescue-v0
error: SearchAndRescue-v0: its actions are float32 arrays of shape (2, 2), and only discrete actions are supported
hint: choose a task with discrete actions, such as Maze-v0 or BinPack-v2
2$ train_ppo NEW --task-id Maze-v0 --level-set binpack-16
error: evaluation.level_set: 'binpack-16' is not a level set of Maze-v0
hint: its sets are named maze-<number of levels>, for example maze-2048
2$ train_ppo NEW --reset-pool-size 2147483647
error: environment.reset_pool_size: a pool of 2,147,483,648 levels is more than can be counted
hint: lower --reset-pool-size, --num-envs or --rollout-length
2$ train_ppo NEW --num-envs 2147483647 --rollout-length 1 --num-minibatches 1
error: environment.reset_pool_size: a pool of 2,147,484,672 levels is more than can be counted
hint: lower --reset-pool-size, --num-envs or --rollout-length
2$ train_ppo NEW --num-devices 4
error: hardware.num_devices: 4 devices requested, JAX sees 1
hint: use --num-devices 1, or --device-type cpu to simulate several devices
2$ train_ppo NEW --num-devices 3
error: --num-devices: num_envs = 8 is not divisible by 3; use 2 or 4
hint: …
2$ train_ppo NEW --cuda-device 1
error: hardware.cuda_device: 1 chooses one GPU, and this run is on cpu
hint: drop --cuda-device, or use --device-type cuda --num-devices 1
4$ train_ppo NEW --load-path .
error: no checkpoint in .
hint: give a run folder, for example runs/<name>
"""),
)
def test_what_cannot_be_trained(refused, code, words, lines):
    assert_shown(refused(code, *_written_out(words)), lines)


@pytest.mark.parametrize(
    ("code", "words", "lines"),
    transcripts("""
2$ train_ppo NEW --run-name a
error: checkpointing.run_name: runs/a exists already
hint: choose another --run-name, or continue it: --resume runs/a
2$ train_ppo NEW --run-name ../a
error: --run-name: '../a' cannot name a run; …
hint: change the values named; docs/configuration.md explains each leaf
1$ train_ppo NEW --save-dir file/below
error: cannot make file/below/new: Not a directory
hint: choose another folder with --save-dir
4$ train_ppo NEW --load-path aa
error: no run at aa; did you mean 'a'?
hint: existing runs: runs/a
4$ train_ppo NEW --hidden-dim 16 --load-path runs/a
error: checkpoint $PWD/runs/a/checkpoints/best/1 does not fit:
    params/actor/params/head/Dense_0/Dense_0/kernel is stored as (8, 2), this run has (16, 2)
hint: it was trained with another network; use the run's config.yaml, or the version in versions.json
4$ train_ppo --resume runs/junk
error: no run at runs/junk
hint: existing runs: runs/a
2$ train_ppo --resume runs/a --num-updates 1
error: --num-updates: 1 is below the 2 updates the run has done
hint: use 2 or more
2$ train_ppo --resume runs/a --num-envs 16 --task-id Maze-v0
error: num_envs cannot change when a run is resumed
error: task_id cannot change when a run is resumed
hint: leave it out, or start a new run with --load-path runs/a
2$ train_ppo --resume runs/a --load-path runs/a
error: load_path cannot change when a run is resumed
hint: leave it out, or start a new run with --load-path runs/a
2$ train_ppo NEW --level-set actionobservationreward-99999999999
error: evaluation.level_set: 'actionobservationreward-99999999999' has more than 1,073,741,824 levels
hint: name a smaller set
2$ evaluate runs/a --level-set actionobservationreward-1073741825
error: evaluation.level_set: 'actionobservationreward-1073741825' has more than 1,073,741,824 levels
hint: name a smaller set
2$ evaluate runs/a --num-episode=4
error: unrecognized arguments: --num-episode=4; did you mean '--num-episodes'?
hint: evaluate.py --help lists its arguments
2$ evaluate runs/a --num-episodes many
error: argument --num-episodes: expected a positive whole number, got 'many'
hint: …
2$ evaluate runs/a --num-episodes 1e10
error: argument --num-episodes: expected at most 2147483647, got '1e10'
hint: …
2$ evaluate runs/a --seed -1
error: argument --seed: expected a whole number in [0, 2147483647], got '-1'
hint: …
2$ evaluate runs/a --num-episodes 8 --json nowhere/result.json
error: argument --json: there is no folder nowhere
hint: …
4$ evaluate runs/a --checkpoint 1.5
error: no checkpoint is named '1.5'
hint: use best, latest, or the number of an update
4$ animate runs/a --checkpoint 77
error: no checkpoint of update 77 in $PWD/runs/a/checkpoints
hint: there are: 1, 2
4$ evaluate runs/none
error: no run at runs/none
hint: existing runs: runs/a
2$ plot runs/a --bogus
error: unrecognized arguments: --bogus
hint: plot.py --help lists its arguments
2$ export_policy runs/a --bogus
error: unrecognized arguments: --bogus
hint: export_policy.py --help lists its arguments
2$ animate runs/a --index 1
error: --index: the run has 1 seed(s)
hint: use 0 to 0
3$ animate runs/a
error: probe/action_observation_reward cannot be drawn: it has no `animate`
hint: …
"""),
)
def test_what_cannot_be_done_with_a_run(refused, run, code, words, lines):
    Path("runs/junk").mkdir()
    Path("file").write_text("not a folder")
    assert_shown(refused(code, *_written_out(words)), [line.replace("$PWD", str(Path.cwd())) for line in lines])


def test_an_output_in_a_folder_that_is_not_writable_is_refused_before_anything_is_played(refused, run, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: not (Path(path) == Path("runs") and mode == os.W_OK))
    error, _ = refused(2, "evaluate", "runs/a", "--json", "runs/result.json")
    assert error == "error: argument --json: the folder runs is not writable"


def _out_of_memory(*_args, **_kwargs):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.\nmore")


NOTE = ["note:", "the"]  # values of ppo/quick for a probe


def test_what_cannot_be_compiled_leaves_no_folder(run, monkeypatch, capfd):
    Path("runs/latest").symlink_to("a")
    before = all_below()
    monkeypatch.setattr(chunk, "compile_chunk", _out_of_memory)
    for leaves in ({}, {"save_dir": "other/runs"}):
        assert exit_code(load_script("train_ppo").main, _train_flags(**leaves)) == 1
        captured = capfd.readouterr()
        assert captured.err.splitlines() == [
            "error: the update cannot be compiled: RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.",
            "hint: raise --num-minibatches, or start a run with a lower --num-envs or --rollout-length",
        ]
        lines = [line.split()[:2] for line in captured.out.splitlines()]
        assert lines[1:] == [["run", f"{leaves.get('save_dir', 'runs')}/new"], ["plan", "8"], NOTE, ["compiling", "…"]]
        assert all_below() == before
    assert os.readlink("runs/latest") == "a"


def test_a_first_state_that_does_not_fit_writes_nothing(refused, monkeypatch):
    initial = start.initial_state
    monkeypatch.setattr(start, "initial_state", lambda *arguments: (_out_of_memory, initial(*arguments)[1]))
    assert refused(1, "train_ppo", *_train_flags()) == [
        "error: the first state cannot be made: RESOURCE_EXHAUSTED: Out of memory allocating 1 byte.",
        "hint: lower --num-envs, --reset-pool-size, --hidden-dim, --num-layers or --num-seeds",
    ]


@pytest.mark.skipif(Path("/dev/nvidia0").exists() or Path("/dev/accel0").exists(), reason="the device is there")
@pytest.mark.parametrize(
    ("device", "extra"), [("cuda", ' or pip install "stoix_like[cuda12]"'), full("tpu", "")], ids=["cuda", "tpu"]
)
def test_absent_device(device, extra, tmp_path):
    """In a new process: the platform is chosen before JAX starts."""
    command = [sys.executable, ROOT / "scripts" / "train_ppo.py", *_train_flags(device_type=device)]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAX_PLATFORMS", None)
    result = subprocess.run(command, check=False, text=True, capture_output=True, timeout=60, env=environment)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"error: hardware.device_type: '{device}' is not available; JAX sees only cpu",
        f"hint: use --device-type cpu{extra}",
    ]
    assert list(Path().iterdir()) == []


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="the device is there")
def test_absent_device_when_jax_runs_already(refused):
    """A notebook's case: JAX has started on the CPU, and must not be taken for the GPU."""
    jax.devices()
    before = jax.config.jax_platforms
    try:
        error, _ = refused(2, "train_ppo", *_train_flags(device_type="cuda"))
    finally:
        jax.config.update("jax_platforms", before)
    assert error == "error: hardware.device_type: 'cuda' is not available; JAX sees only cpu"


def test_a_terminal_without_the_signs_of_a_table_gets_others():
    command = "import sys; from stoix_like.commands.entry import run_main; run_main(lambda _: print('1 – 2 · 3'))"
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    result = subprocess.run([sys.executable, "-c", command], check=False, capture_output=True, env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"1 ? 2 \xb7 3\n", b"")


def test_a_run_without_a_name_is_told_where_it_really_is(monkeypatch, capfd):
    """Another one, begun in the same second, has made the folder between the name's choice and its making."""
    name = "ppo-probe_action_observation_reward-20260101-120000-s0"
    monkeypatch.setattr(run_folder.time, "strftime", lambda _: "20260101-120000")
    monkeypatch.setattr(chunk, "compile_chunk", _out_of_memory)
    first_state = start.first_state
    monkeypatch.setattr(
        start, "first_state", lambda *args: Path("runs", name).mkdir(parents=True) or first_state(*args)
    )
    assert exit_code(load_script("train_ppo").main, _train_flags(run_name="null")) == 1
    captured = capfd.readouterr()
    assert captured.out.splitlines()[1].split() == ["run", f"runs/{name}-2"]
    assert [path.name for path in Path("runs").iterdir()] == [name]


def test_runs_without_checkpoints_and_of_another_algorithm(refused, run):
    shutil.rmtree("runs/a/checkpoints")
    (run / "checkpoints").mkdir()
    error, _ = refused(4, "train_ppo", "--resume", "runs/a")
    assert error == f"error: no checkpoint in {run.absolute()}/checkpoints"
    config, template = _template()
    store = CheckpointStore(run / "checkpoints", create=True)
    params = jax.tree.map(_filled, template.params)
    store.save({"params": params}, CheckpointMeta("dqn", TASK, 3, config_to_dict(config), {}))
    error, _ = refused(4, "train_ppo", "--resume", "runs/a")
    assert error == "error: runs/a is a run of DQN, not of PPO"
    error, _ = refused(4, "evaluate", "runs/a", "--checkpoint", "latest")
    assert "DQN" in error


def _cut(checkpoint):
    """Cuts its arrays' bytes: orbax's data folders, without descriptions."""
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.parent.name == "d"]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("script", ["train_ppo", "evaluate", "animate"])
def test_damaged_checkpoint(refused, run, script):
    """One kind of damage: tests/runtime/storage/test_damage.py and runs/test_checkpoint.py have all."""
    checkpoint = run / "checkpoints" / ("2" if script == "train_ppo" else "best/1")
    _cut(checkpoint)
    error, hint = refused(4, script, *(["--resume"] if script == "train_ppo" else []), "runs/a")
    assert error.startswith(f"error: checkpoint {checkpoint.absolute()} cannot be read: ")
    assert hint == DAMAGED_HINT


def test_a_second_writer_is_refused_before_anything_is_read(refused, run):
    """The first may be removing the checkpoint that the second is about to read: here the last one is damaged."""
    _cut(run / "checkpoints" / "2")
    lock = RunLock(run)
    lines = refused(1, "train_ppo", "--resume", "runs/a")
    lock.close()
    assert lines == [
        "error: another process is writing runs/a",
        "hint: wait for it to end, or start a run under another --run-name",
    ]


def test_parameters_are_of_the_checkpoint_that_was_described(run, monkeypatch):
    """A running run may write a newer one between the two."""
    asked = []
    monkeypatch.setattr(CheckpointStore, "load_part", lambda _self, _name, _template, update=None: asked.append(update))
    assert [saved_run.load_run("runs/a", name).meta.update for name in ("latest", "best", "1")] == [2, 1, 1]
    assert asked == [2, 1, 1]


def test_a_run_that_was_not_evaluated_yet_has_no_best(refused, run):
    shutil.rmtree(run / "checkpoints" / "best" / "1")
    assert refused(4, "evaluate", "runs/a") == [
        "error: runs/a has no best checkpoint: it was not evaluated yet",
        "hint: use --checkpoint latest",
    ]


def test_load_path_takes_the_name_of_a_run(run):
    assert find_initial_params(sl.ppo_config(**SMALL, load_path="a")) == Path("runs/a")
