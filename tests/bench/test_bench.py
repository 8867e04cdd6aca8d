"""The bench's arithmetic, its refusal, and the shape of its rows. Nothing is timed here."""

import itertools
import json
import subprocess

import jax
import pytest
from support.marks import full

from stoix_like.bench import suites
from stoix_like.bench.speed import binpack, environments, launches, overhead, scaling, sharing
from stoix_like.bench.timing import measure, peaks, updates
from stoix_like.bench.timing.measure import Measurement, Timing, row_text
from stoix_like.bench.timing.updates import preset_config
from stoix_like.commands.machine.bench import main, make_parser
from stoix_like.config.layers import resolve
from stoix_like.envs import registry
from stoix_like.runtime.profiling.phase_times import Scopes
from stoix_like.runtime.profiling.traces import ProfileEvent


def test_timings_by_turns_peaks_rows_and_ratios_where_spreads_cannot_explain_them():
    median, spread = measure.timing([4.0, 1.0, 2.0, 3.0, 10.0])
    assert median == 3.0
    assert spread == pytest.approx((4.0 - 2.0) / 2 / 3.0)
    assert measure.significant_ratio(Timing(1.0, 0.02), Timing(2.0, 0.03)) == 2.0
    assert measure.significant_ratio(Timing(1.0, 0.1), Timing(1.15, 0.1)) is None
    assert measure.significant_ratio(Timing(1.0, 0.6), Timing(2.0, 0.5)) is None
    assert measure.peak_flops(512, 256) == 200 * 2 * 512 * 256 * 256
    row = Measurement("x/64", 1234.0, "steps/s", spread=0.2, reference=1000.0)
    assert row_text(row).split() == [
        *("x/64", "1,234", "steps/s", "±", "20%", "reference", "1,000:"),
        *("no", "ratio:", "the", "spread", "is", "larger", "than", "the", "claim"),
    ]
    calls = []
    found = measure.time_interleaved({name: lambda n=name: calls.append(n) or 0 for name in "ab"}, repetitions=3)
    assert calls == list("ab" * 4)
    assert set(found) == {"a", "b"}
    row = measure.comparison_row("a", {"ours": Timing(2.0, 0.1), "theirs": Timing(6.0, 0.1)}, 12.0, "steps/s", "n")
    assert row == Measurement("a", 6.0, "steps/s", 0.1, 2.0, 3.0, note="n")
    close = measure.comparison_row("a", {"ours": Timing(2.0, 0.1), "theirs": Timing(2.3, 0.1)}, 12.0, "steps/s", "n")
    assert close.ratio is None


ROW = Measurement("x", 200.0, "steps/s", 0.1, 100.0, 2.0, 400.0, 0.5, "n")
KEYS = ["name", "value", "unit", "spread", "reference", "ratio", "ceiling", "share", "note"]


def test_rows_are_written_as_a_list_of_objects_also_of_a_suite_that_is_cut_off(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(suites.SUITES, "env", lambda: [ROW])
    assert main(["--suite", "env", "--json", str(tmp_path / "b.json"), "--device-type", "cpu"]) == 0
    machine, row = json.loads((tmp_path / "b.json").read_text())
    assert list(row) == list(machine) == KEYS
    assert Measurement(**row) == ROW
    assert (machine["name"], machine["unit"]) == ("machine", "cores")
    assert f"jax {jax.__version__}," in machine["note"]
    assert "50% of the ceiling 400" in capsys.readouterr().out

    def cut_off():
        yield ROW
        raise KeyboardInterrupt

    monkeypatch.setitem(suites.SUITES, "env", cut_off)
    with pytest.raises(KeyboardInterrupt):
        main(["--suite", "env", "--json", str(tmp_path / "b.json"), "--device-type", "cpu"])
    assert Measurement(**json.loads((tmp_path / "b.json").read_text())[-1]) == ROW


def test_all_is_every_suite_but_the_trainings_and_those_that_are_parts_of_others(monkeypatch, capsys):
    for name in suites.SUITES:
        monkeypatch.setitem(suites.SUITES, name, lambda name=name: [ROW._replace(name=f"of_{name}")])
    assert main(["--suite", "all", "--device-type", "cpu"]) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    trained = {"learning", "learning_maze", "learning_v0", "learning_text", "learning_curves", "ablation", "loop_soak"}
    trained |= {"search", "search_maze"}
    trained |= {"scale_ppo", "scale_spo", "launches", "gpu", "agent_speed", "agent_learning", "spa"}
    assert shown == {"machine", *(f"of_{name}" for name in suites.SUITES if name not in trained)}


def test_the_command_knows_every_suite():
    """Its parser names them again, so that --help imports none."""
    (action,) = [action for action in make_parser()._actions if action.dest == "suite"]
    assert set(action.choices) == {*suites.SUITES, *suites.WITH_OPTIONS, "all"}


@pytest.mark.full
def test_a_rollout_goes_on_and_knows_its_memory():
    """On a real environment: what it carries is consumed, and the program needs at least its arguments' bytes."""
    env = registry.make("Maze-v0", kwargs={"num_rows": 4, "num_cols": 4})
    rollout = environments._our_rollout(env, 8, 4)
    (first, reused), (second, _) = rollout(), rollout()
    assert first.shape == second.shape == reused.shape == (environments.ROLLOUTS, 4)
    assert int(reused.sum()) == 0
    assert rollout.peak_bytes() > 8 * 4 * 4
    assert environments._bare_rollout(env, 8, 4)().shape == first.shape


@pytest.mark.full
def test_the_names_that_are_asked_for_are_measured(monkeypatch):
    """Without timing, and without making what would be timed."""
    taken = {"ours": Timing(1.0, 0.0), "theirs": Timing(2.0, 0.0), "all": Timing(2.0, 0.0), "bare": Timing(1.0, 0.0)}
    for module in (environments, binpack):
        monkeypatch.setattr(module, "time_interleaved", lambda functions, repetitions: {n: taken[n] for n in functions})
    for name in ("_our_rollout", "_bare_rollout", "_jumanji_rollout", "_levels"):
        monkeypatch.setattr(environments, name, lambda *_: lambda: (0.0, [3]))
    monkeypatch.setattr(binpack, "_compile", lambda *_: None)
    monkeypatch.setattr(binpack, "_random_episodes", lambda *_: (None, None))
    monkeypatch.setattr(binpack, "_replay", lambda *_: None)
    rows = {row.name: row for row in environments.env_suite()}
    assert {"binpack_step/64", "binpack_step/1024", "maze_autoreset/1024", "maze_levels/64"} < set(rows)
    assert rows["maze_autoreset/1024"].ratio == 2.0
    assert rows["maze_autoreset/1024"].note.endswith("; 3 levels were handed out twice")
    assert rows["maze_fresh_levels/20_steps"].value == pytest.approx(1e6 / (1024 * 80 * environments.ROLLOUTS))


SMALL = {"num_envs": 4, "rollout_length": 4, "num_minibatches": 1, "hidden_dim": 8, "epochs": 1, "num_eval_envs": 4}
SMALL |= {"num_eval_episodes": 4, "eval_interval": 10, "save_interval": 10, "kwargs": {"num_rows": 4, "num_cols": 4}}


class _Untimed:
    memory_note = "peak memory 1 MiB"

    def __init__(self, config):
        self.config = config


@pytest.mark.full
def test_every_preset_can_be_scaled_and_a_series_ends_where_an_update_would_take_too_long(monkeypatch):
    """At 2,000 steps a second, whatever is done at once."""

    def time_interleaved(functions, repetitions):
        config = functions["update"].config
        seconds = config.environment.num_envs * config.training_core.rollout_length / 2000.0
        return {name: Timing(seconds, 0.1) for name in functions}

    for (_, preset, _), num_envs in itertools.product(scaling.BY_ENVS, scaling.NUM_ENVS):
        assert scaling.with_envs(preset_config(preset), num_envs).environment.num_envs == num_envs, preset
    monkeypatch.setattr(scaling, "Updates", _Untimed)
    for module in (scaling, peaks):
        monkeypatch.setattr(module, "time_interleaved", time_interleaved)
    monkeypatch.setattr(scaling, "NUM_DEVICES", ())
    rows = {row.name: row for row in scaling.updates_suite()}
    assert rows.keys() == {row.name for row in (*scaling.ppo_suite(), *scaling.spo_suite())}
    of_maze = [name for name in rows if name.startswith("scale/ppo_maze/")]
    assert of_maze == [f"scale/ppo_maze/envs/{n}" for n in (64, 256, 1024)]  # 16 steps each: the next takes 32 s
    assert [name for name in rows if "particles" in name] == [f"scale/spo_maze_mlp/particles/{n}" for n in (4, 16, 64)]
    assert all(row.value == pytest.approx(2000.0) for row in rows.values())
    assert rows["scale/ppo_maze_mlp/envs/64"].share is not None
    assert rows["scale/ppo_maze/envs/64"].share is None
    assert rows["scale/spo_maze_mlp/particles/16"].note.startswith(f"{2000 * 16 * 4:,} model steps/s; ")


def test_kernels_are_counted_by_environment_and_gradient_step_and_overlaps_are_busy_once(monkeypatch):
    """Of two streams: two kernels of the rollout at once, then five of two gradient steps.

    One of the five has no scope, as copies have, and one that of the rollout, as a loop inside a network may have.
    """
    scopes = {"step": Scopes("step", False), "dot": Scopes("network", True), "copy": Scopes("other", False)}
    first = [ProfileEvent("step", 0, 2000), ProfileEvent("copy", 10_000, 2000), ProfileEvent("step", 14_000, 1000)]
    second = [ProfileEvent("step", 1000, 3000), *(ProfileEvent("dot", at, 1000) for at in (12_000, 16_000, 18_000))]
    config = resolve(preset_config("ppo/maze_mlp"), SMALL | {"num_minibatches": 2})

    class Updates(_Untimed):
        def traced(self):
            return [first, second], scopes

    monkeypatch.setattr(launches, "Updates", Updates)
    monkeypatch.setattr(launches, "preset_config", lambda _: config)
    monkeypatch.setattr(launches, "NUM_ENVS", (4,))
    monkeypatch.setattr(launches.scaling, "BY_ENVS", (("maze", "ppo/maze_mlp", True),))
    played, learned = launches.launches_suite()
    assert (played.name, played.value) == ("launches/maze/envs/4/environment_step", 2 / 4)
    assert (learned.name, learned.value) == ("launches/maze/envs/4/gradient_step", 5 / 2)
    assert played.note == "7 an update, 1.4 us each; the device is busy for 53% of 0.0 ms while it is traced"


@pytest.mark.full
def test_a_traced_update_has_events_whose_instructions_the_program_names():
    lines, scopes = updates.Updates(resolve(preset_config("ppo/maze_mlp"), SMALL)).traced()
    kernels = launches.count_kernels(lines, scopes)
    assert min(kernels.playing, kernels.optimising) > 0
    assert 0.0 < kernels.busy <= kernels.span


@pytest.mark.full
@pytest.mark.parametrize(
    ("preset", "trained"), [("ppo/maze_mlp", False), full("ppo/maze_mlp", True), full("spo/maze_mlp", False)]
)
def test_the_overhead_of_a_training_is_measured_on_one(monkeypatch, preset, trained):
    leaves = SMALL | {"task_id": "probe/action_observation_reward", "kwargs": {}}  # quick to compile
    leaves |= {"sample_sequence_length": 2, "batch_size": 4} if preset.startswith("spo") else {}
    monkeypatch.setattr(overhead, "preset_config", lambda name: resolve(preset_config(name), leaves))
    monkeypatch.setattr(overhead, "SECONDS", 0.01)
    monkeypatch.setattr(overhead, "PRESETS", (preset,))
    monkeypatch.setattr(overhead, "EVALUATED", {preset: 2} if trained else {})
    evaluations, checkpoints, *later = overhead.overhead_suite()
    assert (checkpoints.name, evaluations.name) == (f"checkpoints/{preset}", f"evaluations/{preset}")
    assert 0.0 < evaluations.value < 100.0
    assert evaluations.note.endswith("(10 updates), of a new network that is kept as the best")
    assert [row.name for row in later] == [evaluations.name] * trained
    assert all(row.note.endswith("of a network of 2 updates that is kept as the best") for row in later)


def test_the_size_of_a_checkpoint_is_that_of_the_newest_alone(tmp_path):
    for update, size in ((9, 3_000_000), (10, 500_000)):
        (tmp_path / str(update) / "state").mkdir(parents=True)
        (tmp_path / str(update) / "state" / "array").write_bytes(bytes(size))
    (tmp_path / "10" / "meta.json").write_bytes(bytes(1000))
    assert overhead.last_checkpoint_megabytes(tmp_path) == pytest.approx(0.501)


@pytest.mark.full
def test_updates_shared_by_devices_have_a_rate(monkeypatch, capsys):
    small = resolve(preset_config("ppo/maze_mlp"), SMALL)
    monkeypatch.setattr(sharing, "preset_config", lambda name: small)
    sharing.main("ppo/maze_mlp", "1", "cpu")
    assert json.loads(capsys.readouterr().out)["rate"] > 0.0


def test_several_devices_are_told_beside_one(monkeypatch):
    """The rates are those that the other processes print; what they measure is tested above."""
    rates = iter([1000.0, 1500.0, 500.0])

    def run(command, **_):
        assert command[-3:] in ([preset, str(n), "cpu"] for preset in scaling.BY_DEVICES for n in (1, 2, 4))
        printed = json.dumps({"rate": next(rates), "spread": 0.1})
        return subprocess.CompletedProcess(command, 0, stdout=f"a warning\n{printed}\n")

    monkeypatch.setattr(scaling.subprocess, "run", run)
    rows = list(scaling._by_devices("ppo/maze_mlp"))
    assert [row.name for row in rows] == [f"scale/ppo_maze_mlp/devices/{n}" for n in (1, 2, 4)]
    assert [row.note.rpartition("; ")[2] for row in rows] == [f"{x} times one device" for x in ("1.00", "1.50", "0.50")]
