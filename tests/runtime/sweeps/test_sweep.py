"""A study and its trials: sampled, pruned, reported and stored, with Optuna itself and real, tiny runs."""

import contextlib
import csv
import json
import math
import re
import shutil
import sqlite3
import statistics
from pathlib import Path

import pytest
from support import telemetry
from support.asserts import refused
from support.marks import full

from stoix_like.commands.entry import exit_code
from stoix_like.commands.runs.sweep import main
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.runs import PPOConfig
from stoix_like.errors import ConfigError, RunError, StorageError
from stoix_like.runtime.results.series import read_started_run
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.sweeps import study as sweep_study
from stoix_like.runtime.sweeps import trial as sweep_trial
from stoix_like.runtime.sweeps.plan import read_plan
from stoix_like.runtime.sweeps.study import Study
from stoix_like.runtime.telemetry import Clock, Report, read_rows
from stoix_like.runtime.training.callbacks import RunClock, StopTraining
from stoix_like.runtime.training.stopping import StopRequest
from stoix_like.runtime.training.train import train

optuna = pytest.importorskip("optuna", reason="needs the 'sweep' extra")

RUN = """
environment: {task_id: probe/action_observation_reward, num_envs: 8}
training_core: {rollout_length: 4, num_minibatches: 2, epochs: 1, num_updates: 24}
architecture: {hidden_dim: 8}
evaluation: {num_eval_envs: 8, num_eval_episodes: 64, eval_interval: 4}
checkpointing: {keep_last_n: 1}
logging: {log_interval: 4}
"""
SWEEP = """
config: run.yaml
num_trials: 4
num_seeds: 3
pruner_startup_trials: 2
space:
  actor_lr: {low: 0, high: 0.1}
  num_minibatches: {choices: [2, 3]}
"""
LINE = "config: run.yaml\nspace: {actor_lr: {low: 1e-4, high: 1e-1, log: true}, gamma: {low: 0, high: 1}}\n"


@pytest.fixture
def plan(inside):
    """A plan from the text of a sweep file, over the tiny run; the working folder is the test's own."""
    Path("run.yaml").write_text(RUN)

    def read(text=LINE):
        Path("sweep.yaml").write_text(text)
        return read_plan(Path("sweep.yaml"))

    return read


@pytest.fixture
def study(plan, tmp_path):
    """Opens the study of a sweep file in the working folder; all are closed in the end."""
    opened = []

    def begin(text=LINE):
        opened.append(Study(tmp_path, plan(text)))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def complete(study, *values):
    """A trial that reported these values at updates 4, 8, ... and is complete."""
    trial = study.ask()
    study.report(trial.number, {4 * (index + 1): value for index, value in enumerate(values)})
    study.complete(trial.number, values[-1])


@pytest.mark.full
@pytest.mark.parametrize("sampler", ["tpe", full("random")])
def test_a_study_that_is_opened_anew_draws_what_an_unbroken_one_draws(study, tmp_path, sampler):
    """Beyond TPE's ten random trials. With optuna's own seed the second process would repeat the first trial."""

    def drawn(is_broken):
        (tmp_path / "study.db").unlink(missing_ok=True)
        each, found = study(LINE + f"sampler: {sampler}\n"), []
        for number in range(14):
            if is_broken and number % 3 == 2:
                each.close()
                each = study(LINE + f"sampler: {sampler}\n")
            trial = each.ask()
            assert trial.number == number
            found.append(trial.parameters)
            each.complete(number, -((trial.parameters["gamma"] - 0.3) ** 2))
        each.close()
        return found

    unbroken = drawn(False)
    assert drawn(True) == unbroken
    assert len({parameters["gamma"] for parameters in unbroken}) == 14
    (tmp_path / "study.db").unlink()
    assert study(LINE + f"sampler: {sampler}\nsampler_seed: 1\n").ask().parameters != unbroken[0]


def test_draws_are_of_the_space(study):
    each = study(
        "config: run.yaml\nsampler: random\nspace:\n"
        "  actor_lr: {low: 1e-4, high: 1e-1, log: true}\n  gamma: {low: 0, high: 1, step: 0.25}\n"
        "  epochs: {low: 1, high: 7, step: 3}\n  value_clip_eps: {choices: [null, 0.2]}\n"
    )
    drawn = [each.ask().parameters for _ in range(40)]
    assert all(1e-4 <= parameters["actor_lr"] <= 1e-1 for parameters in drawn)
    assert 8 < sum(parameters["actor_lr"] < 10**-2.5 for parameters in drawn) < 32  # evenly over the logarithm
    assert {parameters["gamma"] for parameters in drawn} == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert {parameters["epochs"] for parameters in drawn} == {1, 4, 7}
    assert {parameters["value_clip_eps"] for parameters in drawn} == {None, 0.2}


@pytest.mark.parametrize(("direction", "sign"), [("maximize", 1), ("minimize", -1)])
def test_a_trial_is_hopeless_below_the_median(study, direction, sign):
    """Complete trials had 0.1, 0.5 and 0.9 at update 8: their median is 0.5."""
    each = study(LINE + f"direction: {direction}\npruner_startup_trials: 3\n")
    for at_8 in (0.1, 0.5):
        complete(each, sign * 0.9, sign * at_8)
    trial = each.ask().number
    each.report(trial, {4: sign * 0.0, 8: sign * 0.4})
    assert not each.should_prune(trial, eval_interval=4)  # two trials are complete, and three are asked for
    complete(each, sign * 0.9, sign * 0.9)
    assert each.should_prune(trial, eval_interval=4)
    for values, is_hopeless in [
        ({4: 0.0}, False),  # the first evaluation is spared
        ({4: 0.0, 8: 0.49}, True),
        ({4: 0.0, 8: 0.51}, False),
        ({4: 0.6, 8: 0.0}, False),  # its best so far counts
        ({4: 0.0, 8: 0.0, 12: 0.0}, False),  # no other reported at update 12
    ]:
        trial = each.ask().number
        each.report(trial, {update: sign * value for update, value in values.items()})
        assert each.should_prune(trial, eval_interval=4) == is_hopeless, values
        if is_hopeless:
            each.close()
            assert not study(LINE + f"direction: {direction}\npruner: none\n").should_prune(trial, eval_interval=4)
            each = study(LINE + f"direction: {direction}\npruner_startup_trials: 3\n")


def test_a_trial_stays_the_same_trial_until_it_ends(study):
    each = study()
    asked = each.ask()
    each.report(asked.number, {4: 0.25, 8: 0.5})
    each.close()
    each = study()
    assert each.trials() == [asked]
    assert asked.state == "running"
    each.report(asked.number, {8: 0.75})  # played again after a kill: written over
    each.note(asked.number, updates=8)
    each.prune(asked.number)
    assert each.trials() == [asked._replace(state="pruned", value=0.75, notes={"updates": 8})]


def test_a_trial_killed_while_it_was_drawn_counts_for_nothing(study):
    each = study()
    each._storage.create_new_trial(each._id)
    assert each.trials() == []
    assert each.ask().number == 1
    assert [trial.state.name for trial in each._study.trials] == ["FAIL", "RUNNING"]


def test_a_changed_sweep_is_refused_and_a_longer_one_is_not(study):
    study().close()
    problems = [
        'sweep.yaml: metric is "evaluator/max_return", and was "evaluator/mean_return" when the study began',
        'sweep.yaml: space.gamma is {"low": 0.0, "high": 0.5}, and was {"low": 0.0, "high": 1.0} when the study began',
    ]
    with refused(ConfigError, problems) as caught:
        study(LINE.replace("high: 1}", "high: 0.5}") + "metric: evaluator/max_return\n")
    assert "--study NAME" in caught.value.hint
    assert study(LINE + "num_trials: 90\npruner: none\nsampler: random\n").ask().number == 0


def test_a_file_that_is_no_study_is_reported(study):
    Path("study.db").write_bytes(b"no database at all, and more than sixteen bytes long")
    with pytest.raises(RunError, match=r"study\.db cannot be used: file is not a database"):
        study()


AGAIN = "type the same command again"


def _lock(file, each):
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    return holder.close


def _fill(file, each):
    with each._storage.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    return each._storage.engine.dispose  # the limit is of the connection


def _remove(file, each):
    moved = file.rename(file.with_name("moved"))
    return lambda: moved.rename(file)


@pytest.mark.parametrize(
    ("harm", "reason", "hint"),
    [
        (_lock, "database is locked", f"another program holds it, such as a backup or a dashboard: when .*{AGAIN}"),
        (_fill, "database or disk is full", f"free some space, then {AGAIN}"),
        (_remove, "it was removed or replaced while the sweep ran", f"put it back, then {AGAIN}"),
    ],
)
def test_a_study_that_cannot_be_written_is_one_line_and_goes_on_afterwards(study, monkeypatch, harm, reason, hint):
    monkeypatch.setattr(sweep_study, "_LOCKED_SECONDS", 0.01)
    each = study()
    asked = each.ask()
    heal = harm(each.path, each)
    long = "x" * 100_000
    for write in (lambda: each.note(asked.number, message=long), lambda: each.fail(asked.number, long)):
        with pytest.raises(StorageError, match=f"study.db cannot be used: {reason}") as caught:
            write()
        assert re.fullmatch(hint, caught.value.hint.partition(";")[0])
    heal()
    each.close()
    each = study()
    assert each.trials() == [asked]
    each.fail(asked.number, "after all")
    assert each.trials()[0].notes["message"] == "after all"


@pytest.mark.full
def test_importances_find_what_matters(study):
    each = study(LINE + "sampler: random\n")
    for count in range(60):
        if count == 3:
            assert each.importances() == {}  # of three complete trials nothing can be said
        trial = each.ask()
        each.complete(trial.number, -((trial.parameters["gamma"] - 0.5) ** 2))
    found = each.importances()
    assert list(found) == ["gamma", "actor_lr"]
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["gamma"] > 0.8


META = telemetry.run_meta(num_seeds=2, num_updates=24, eval_interval=4)


def evaluated(update, *values):
    return [Report(Clock(update, 0, 0.0), {"evaluator/mean_return": values}, seeds=range(len(values)))]


def watched(study, folder, number=None, **facts):
    """The sink and the pruner of a trial, new if it has no number."""
    number = study.ask().number if number is None else number
    sink = sweep_trial.TrialSink(study, number, "evaluator/mean_return")
    sink.open(folder, META._replace(**facts))
    return sink, sweep_trial.PruneTrial(study, number, eval_interval=4)


def is_pruned(prune, update):
    """Whether the pruner ends a run that has evaluated this update; it must be due then, and not again."""
    clock = RunClock(update, 24, 1, evaluated_at=update)
    if clock.is_last:
        assert prune.next_update(clock) > update
        return False
    assert prune.next_update(clock) == update
    with contextlib.suppress(StopTraining):
        prune.run(None, clock)
        assert prune.next_update(clock) > update
        return False
    return True


@pytest.fixture
def strict(study):
    """A study in which a trial that is below 0.5 at its second evaluation is hopeless."""
    each = study(LINE + "pruner_startup_trials: 1\n")
    complete(each, *[0.5] * 6)
    return each


def test_a_hopeless_trial_is_ended_at_its_evaluation_and_a_finished_one_is_not_pruned(strict, tmp_path):
    sink, prune = watched(strict, tmp_path)
    sink.write([Report(Clock(4, 0, 0.0), {"trainer/entropy": [0.0]}, seeds=[0])])
    sink.write(evaluated(4, 0.0, 0.2))
    assert not is_pruned(prune, 4)
    sink.write(evaluated(8, 0.4, 0.7))  # 0.55 on average
    assert not is_pruned(prune, 8)
    sink, prune = watched(strict, tmp_path)
    sink.write(evaluated(4, 0.0, 0.2))
    assert not is_pruned(prune, 4)
    sink.write(evaluated(8, 0.2, 0.6))  # 0.4
    assert is_pruned(prune, 8)
    assert strict._study.trials[-1].intermediate_values == {4: 0.1, 8: 0.4}
    sink, prune = watched(strict, tmp_path)
    sink.write(evaluated(24, 0.0, 0.0))
    assert not is_pruned(prune, 24)


def test_a_trial_that_was_killed_before_it_was_pruned_is_pruned_when_it_is_resumed(strict, tmp_path):
    """Its metrics.jsonl is reported again."""
    sink, _ = watched(strict, tmp_path)
    sink.write(evaluated(4, 0.0, 0.0))
    row = {"update": 8, "category": "EVALUATOR", "elapsed_seconds": 1.0, "evaluator/mean_return": 0.0}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row | {"seed": seed}) + "\n" for seed in (0, 1)))
    _, prune = watched(strict, tmp_path, strict.trials()[-1].number, resumed_update=8)
    assert is_pruned(prune, 8)


def test_the_values_of_a_trial_are_means_over_its_seeds_and_not_finite_if_one_is_not(tmp_path):
    scores = [(4, 0, 0.25), (4, 1, 0.75), (8, 0, 0.5), (8, 1, None)]
    rows = [{"update": u, "category": "EVALUATOR", "seed": s, "evaluator/mean_return": v} for u, s, v in scores]
    rows.append({"update": 12, "category": "EVALUATOR", "seed": 0, "evaluator_network/mean_return": 1.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = sweep_trial.trial_values(read_started_run(tmp_path), "evaluator/mean_return")
    assert values == pytest.approx({4: 0.5, 8: math.nan}, nan_ok=True)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a finished sweep whose parameters were queued: good, good, impossible, and never learning."""
    folder = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        Path("run.yaml").write_text(RUN)
        Path("tiny.yaml").write_text(SWEEP)
        Path("runs/tiny").mkdir(parents=True)
        enqueue(Path("runs/tiny"), (0.02, 2), (0.03, 2), (0.02, 3), (0.0, 2)).close()
        assert exit_code(main, ["tiny.yaml"]) == 0
    return folder / "runs" / "tiny"


def table(folder):
    return json.loads((folder / "trials.json").read_text())


def enqueue(folder, *parameters):
    """Opens the sweep's study and queues trials of these values of actor_lr and num_minibatches."""
    study = Study(folder, read_plan(Path("tiny.yaml")))
    for actor_lr, num_minibatches in parameters:
        study._study.enqueue_trial({"actor_lr": actor_lr, "num_minibatches": num_minibatches})
    return study


def evaluations(run):
    """{update: mean over seeds} from the run's own record."""
    found = {}
    for row in read_rows(run / "metrics.jsonl"):
        if row["category"] == "EVALUATOR":
            found.setdefault(row["update"], []).append(row["evaluator/mean_return"])
    assert all(len(values) == 3 for values in found.values())
    return {update: statistics.fmean(values) for update, values in found.items()}


def optuna_trials(folder):
    storage = optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.db'}")
    trials = optuna.load_study(study_name="sweep", storage=storage).trials
    storage.remove_session()
    storage.engine.dispose()
    return trials


def test_values_are_those_of_the_runs_and_tables_have_the_same_content(swept):
    trials = optuna_trials(swept)
    assert [trial.state.name for trial in trials] == ["COMPLETE", "COMPLETE", "FAIL", "PRUNED"]
    for number in (0, 1, 3):
        values = evaluations(swept / f"trial-{number:04d}")
        assert trials[number].intermediate_values == pytest.approx(values, rel=1e-15)
        assert trials[number].value == pytest.approx(values[max(values)], rel=1e-15)
        assert trials[number].user_attrs["updates"] == max(values)
    assert trials[0].value > 0.9  # it did learn

    impossible = "num_envs * rollout_length = 8 * 4 = 32 is not divisible by 3; use 2 or 4"
    assert trials[2].user_attrs["message"] == f"training_core.num_minibatches: {impossible}"
    assert not (swept / "trial-0002").exists()
    content = table(swept)
    assert [(one["number"], one["value"], one["state"], one["updates"]) for one in content["trials"]] == [
        (0, trials[0].value, "complete", 24),
        (1, trials[1].value, "complete", 24),
        (2, None, "failed", None),
        (3, trials[3].value, "pruned", 8),
    ]
    assert content["best"] == max((0, 1), key=lambda number: (trials[number].value, -number))
    rows = list(csv.DictReader((swept / "trials.csv").read_text().splitlines()))
    for row, trial in zip(rows, content["trials"], strict=True):
        for name in ("value", "updates"):
            assert row[name] == ("" if trial[name] is None else str(trial[name]))
        assert float(row["actor_lr"]) == trial["parameters"]["actor_lr"]


def test_a_trial_is_a_run_with_its_parameters_and_a_hopeless_one_stopped_early_and_was_saved(swept):
    run = swept / "trial-0003"
    assert read_rows(run / "metrics.jsonl")[-1]["update"] == 8  # the first evaluation after the warm-up
    assert [path.name for path in (run / "checkpoints").iterdir() if path.name.isdecimal()] == ["8"]
    text = ["--config", str(swept / "trial-0001" / "config.yaml")]
    config = load_config(PPOConfig, "ppo", text, default_config="ppo/quick").config
    leaves = {"actor_lr": 0.03, "num_minibatches": 2, "num_seeds": 3, "num_updates": 24, "run_name": "trial-0001"}
    assert {name: get_leaf(config, name) for name in leaves} == leaves
    assert "3 seeds" in (swept / "trial-0001.log").read_text()


@pytest.fixture
def again(swept, tmp_path, monkeypatch):
    """A copy of the finished sweep to go on with."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(swept.parents[1] / "cache"))
    shutil.copytree(swept.parents[1], tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return Path("runs/tiny")


def test_a_finished_sweep_prints_its_table_again_and_goes_on_with_more_trials_and_a_figure(again, capfd):
    before = {path: path.stat().st_mtime_ns for path in again.glob("trial-*/*")}
    assert exit_code(main, ["tiny.yaml"]) == 0
    out = capfd.readouterr().out
    assert "study runs/tiny, 4 of its trials are done" in out
    best = re.search(r"(?m)^best: trial (\d)", out)[1]
    rows = re.findall(r"(?m)^ *(\d) +\S+ +(?:complete|pruned|failed)\b", out)
    assert rows == [best, *({"0", "1"} - {best}), "3", "2"]
    assert {path: path.stat().st_mtime_ns for path in again.glob("trial-*/*")} == before
    enqueue(again, (0.01, 2), (0.04, 2)).close()
    assert exit_code(main, ["tiny.yaml", "--num-trials", "6"]) == 0
    lines = capfd.readouterr().out.splitlines()
    played = [line.split()[1] for line in lines if line.startswith("trial ") and " updates in " in line]
    assert played == ["4", "5"]
    assert table(again)["importances"].keys() == {"actor_lr", "num_minibatches"}
    assert (again / "importances.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_the_command_it_names_repeats_the_best_trial(again, capfd):
    exit_code(main, ["tiny.yaml"])
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("next: ")]
    words = line.split()
    loaded = load_config(PPOConfig, "ppo", words[words.index("--config") :], default_config="ppo/quick")
    assert train("ppo", loaded).status == "done"
    run = Path("runs/tiny-best")
    best = again / f"trial-{json.loads((again / 'trials.json').read_text())['best']:04d}"
    assert evaluations(run) == evaluations(best)


@pytest.mark.full
def test_a_trial_killed_before_its_first_checkpoint_begins_anew(again):
    """A trial killed after its last update, but before its result was stored, is only recorded."""
    study = enqueue(again, (0.02, 2), (0.03, 2))
    values = {trial.number: trial.value for trial in study.trials()}
    asked = [study.ask().number for _ in range(2)]
    study.close()
    (again / "trial-0004").mkdir()
    (again / "trial-0004" / "config.yaml").write_text("torn: ")
    shutil.copytree(again / "trial-0001", again / "trial-0005")
    assert (asked, exit_code(main, ["tiny.yaml"])) == ([4, 5], 0)
    content = table(again)["trials"]
    assert [content[4]["value"], content[5]["value"]] == [values[0], values[1]]
    assert len(content) == 6  # no other was started: four were requested


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NotADirectoryError("Not a directory"), None),
        (StorageError("cannot write the checkpoint in x: No space left on device", "free some space"), None),
        (ZeroDivisionError("of one's own"), "ZeroDivisionError: of one's own"),
    ],
)
def test_what_no_trial_could_do_ends_the_sweep_and_a_bug_fails_its_trial_too(
    plan, study, tmp_path, monkeypatch, error, message
):
    """A disk that cannot be written is no fault of the parameters; the same command would meet a bug for ever."""
    monkeypatch.setattr(sweep_trial, "train", raising(error))
    each = study()
    asked = each.ask()
    with pytest.raises(type(error)):
        sweep_trial.run_trial(plan(), each, asked, tmp_path / "trial-0000", StopRequest())
    (trial,) = each.trials()
    assert (trial.state, trial.notes.get("message")) == ("failed" if message else "running", message)


@pytest.mark.full
def test_a_loss_that_is_not_finite_fails_its_trial(plan, study, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    text = "config: run.yaml\nspace: {actor_lr: {choices: [1e38, 3e38]}}\n"
    text += "fixed: {reward_scale: 1e38, critic_lr: 1e38}\n"
    each = study(text)
    trial = each.ask()
    played = sweep_trial.run_trial(plan(text), each, trial, tmp_path / "trial-0000", StopRequest())
    (failed,) = each.trials()
    assert (played, failed.state) == (True, "failed")
    assert "is not finite at update" in failed.notes["message"]


def test_a_signal_while_a_trial_is_prepared_ends_the_sweep_before_its_first_update(plan, study, tmp_path, monkeypatch):
    """Until its run takes signals the sweep's own request does: what has asked that one asks the run."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    each = study()
    trial, stop = each.ask(), StopRequest()
    stop.is_set = True
    assert sweep_trial.run_trial(plan(), each, trial, tmp_path / "trial-0000", stop) is False
    assert each.trials()[0].state == "running"  # the same command resumes it
    assert max(row["update"] for row in read_rows(tmp_path / "trial-0000" / "metrics.jsonl")) == 0


@pytest.fixture
def nothing_started(plan, capfd):
    """Runs the command, which must fail with this code and write nothing."""
    plan()

    def run(code, *argv):
        before = sorted(path for path in Path().rglob("*") if path.name != ".lock")
        assert exit_code(main, list(argv)) == code
        captured = capfd.readouterr()
        assert captured.out == ""
        assert sorted(path for path in Path().rglob("*") if path.name != ".lock") == before
        return captured.err.splitlines()

    return run


def test_what_cannot_start_is_reported_before_anything_is_written(nothing_started):
    assert nothing_started(2, "sweep.yaml", "--study", "../else")[0] == "error: --study: '../else' cannot name a study"
    Path("runs/other").mkdir(parents=True)
    Path("runs/other/config.yaml").write_text(RUN)
    assert nothing_started(2, "sweep.yaml", "--study", "other")[0] == "error: --study: runs/other holds something else"
    Path("what?").mkdir()
    assert "has a question mark" in nothing_started(2, "sweep.yaml", "--save-dir", "what?")[0]
    (error, *_) = nothing_started(2, "sweep.yaml", "--num-trials", "0")
    assert error.startswith("error: argument --num-trials: expected a positive")
    Path("sweep.yaml").write_text(LINE + "metric: evaluator/solve_rate\n")
    assert nothing_started(2, "sweep.yaml")[0] == (
        "error: sweep.yaml: metric: evaluations of probe/action_observation_reward report no 'solve_rate'"
    )
    Path("sweep.yaml").write_text(LINE + "fixed: {task_id: Mase-v0}\n")
    assert nothing_started(3, "sweep.yaml")[0].startswith("error: unknown task 'Mase-v0'")
    Path("sweep.yaml").write_text(LINE)
    Path("runs/file").write_text("")
    assert nothing_started(1, "sweep.yaml", "--study", "file")[0] == "error: cannot make runs/file: File exists"


def test_a_sweep_without_a_value_says_so(plan, capfd):
    text = "config: run.yaml\nnum_trials: 2\nspace: {num_minibatches: {choices: [3, 5]}}\n"
    plan(text)
    assert exit_code(main, ["sweep.yaml"]) == 1
    captured = capfd.readouterr()
    assert captured.err.splitlines()[0] == "error: no trial of runs/sweep is complete"
    assert captured.out.count("is not divisible by") == 4  # a line for each as it ends, and below the table
    assert table(Path("runs/sweep"))["best"] is None
