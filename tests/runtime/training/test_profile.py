"""How a trace becomes a table of phases: by hand, and once for real."""

import contextlib
import gzip
import io
import json
from types import SimpleNamespace

import jax
import pytest
from support.scripted_runs import MAZE, SMALL_PPO_RUN, command

from stoix_like.runtime.profiling import phase_times, traces
from stoix_like.runtime.profiling.phase_times import Scopes
from stoix_like.runtime.profiling.traces import ProfileEvent
from stoix_like.runtime.training import chunk
from stoix_like.runtime.training.profile import Profile

PROGRAM = """HloModule jit_chunk, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0), metadata={op_name="x"}
  %sine.1 = f32[8]{0} sine(%p), metadata={op_name="jit(chunk)/while/body/vmap(phase_step)/jit(step)/sin"}
  ROOT %add.1 = f32[8]{0} add(%sine.1, %p), metadata={op_name="jit(chunk)/while/body/vmap(phase_step)/add"}
}

%body (arg: (f32[8])) -> (f32[8]) {
  %arg = (f32[8]) parameter(0)
  %fusion.1 = f32[8]{0} fusion(%arg), kind=kLoop, calls=%fused
  %dot.2 = f32[8]{0} dot(%arg), metadata={op_name="jit(chunk)/phase_optimise/while/transpose(jvp(actor))/dot" id=3}
  %gather.3 = f32[8]{0} gather(%arg), metadata={op_name="jit(chunk)/phase_optimise/while/phase_gather/take"}
  %copy.4 = f32[8]{0} copy(%arg)
  %dot.7 = f32[8]{0} dot(%arg), metadata={op_name="jit(chunk)/while/phase_search/phase_network/dot"}
  ROOT %tuple.5 = (f32[8]) tuple(%copy.4)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %while.6 = (f32[8]) while(%x), condition=%cond, body=%body, metadata={op_name="jit(chunk)/while"}
}
"""


def test_scopes_of_instructions_times_without_what_runs_in_a_loop_and_shares_by_hand():
    found = phase_times.scopes_of(PROGRAM)
    assert phase_times.module_name(PROGRAM) == "jit_chunk"
    assert found["fusion.1"] == Scopes("step", False)  # has no name of its own: as most of what is fused
    assert found["dot.2"] == Scopes("optimise", True)
    assert found["gather.3"] == Scopes("gather", True)  # the innermost counts, and it still belongs to optimisation
    assert found["dot.7"] == Scopes("network", False, True)  # the network inside the search
    assert found["copy.4"] == found["while.6"] == Scopes("other", False)
    # A loop of 100 ns holds two instructions of 30 and 20; another thread runs one of 7 meanwhile.
    events = [("while.6", 0, 100), ("fusion.1", 10, 30), ("dot.2", 40, 20), ("copy.4", 100, 5)]
    found = traces.self_times([[ProfileEvent(*event) for event in events], [ProfileEvent("dot.2", 0, 7)]])
    assert found == {"while.6": 50, "fusion.1": 30, "dot.2": 27, "copy.4": 5}
    nanoseconds = {"fusion.1": 30, "dot.2": 40, "gather.3": 10, "copy.4": 15, "dot.7": 5}
    times = phase_times.phase_times(nanoseconds, phase_times.scopes_of(PROGRAM), 2, 0.5)
    shares = {"step": 0.3, "network": 0.05, "gather": 0.1, "optimise": 0.4, "other": 0.15}
    assert times.shares == dict.fromkeys(("generate", "search", "model", "replay"), 0.0) | shares
    assert (times.playing, times.optimising, times.searching) == (0.35, 0.5, 0.05)


def test_kernels_of_command_buffers_are_told_by_their_names_and_those_of_libraries_by_their_neighbours():
    recorded = ["fusion_1", "dot_2", "dot_7", "dot_7", "void cutlass::Kernel2<gemm>"]
    events = [f"command_buffer_9/{kernel}" for kernel in recorded]
    events += [
        "command_buffer_8/dot_2",
        "command_buffer_8/memcpy32_post",
        "command_buffer_7/memcpy32_post",
        "dot.2",
        "?",
    ]
    found = phase_times.scopes_of_events(events, phase_times.scopes_of(PROGRAM))
    assert [found[event] for event in events] == [
        Scopes("step", False),
        Scopes("optimise", True),
        *[Scopes("network", False, True)] * 2,
        Scopes("network", False, True),  # most of its command buffer
        Scopes("optimise", True),
        Scopes("optimise", True),
        Scopes("other", False),  # nothing is known of what is recorded with it
        Scopes("optimise", True),
        Scopes("other", False),
    ]


class _Line:
    def __init__(self, *events):
        self.events = [SimpleNamespace(name=n, stats=s.items(), start_ns=1.0, duration_ns=2.0) for n, s in events]


def test_an_event_of_a_command_buffer_is_read_with_its_kernel():
    module = {"hlo_module": "jit_chunk.1"}
    kernels = [
        ("dot_2", module | {"hlo_op": "command_buffer_9"}),
        ("k", module | {"hlo_op": "dot.7"}),
        ("MemcpyH2D", {}),
    ]
    found = traces._of_line(_Line(*kernels), "jit_chunk")
    assert [event.instruction for event in found] == ["command_buffer_9/dot_2", "dot.7"]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A few updates on a probe, in this process: (run folder, what was printed)."""
    folder = tmp_path_factory.mktemp("profile")
    leaves = SMALL_PPO_RUN | MAZE | {"rollout_length": 8, "num_updates": 4, "eval_interval": 0, "log_interval": 10}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert command("train-ppo", "--profile", **leaves | {"save_dir": folder, "run_name": "p"}) == 0
    return folder / "p", printed.getvalue()


@pytest.mark.full
def test_the_table_the_row_and_the_trace_tell_every_phase(profiled):
    folder, printed = profiled
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (row,) = [row for row in rows if row.get("misc/event") == "profiled"]
    phases = {name: row[f"misc/{name}_ms"] for name in ("generate", "step", "network", "gather", "optimise")}
    assert all(milliseconds > 0.0 for milliseconds in phases.values())
    whole = row["misc/other_ms"] + sum(phases.values())
    assert sum(row[f"misc/{part}_duration_ms"] for part in ("rollout", "optimization")) == pytest.approx(
        whole - row["misc/other_ms"]
    )
    assert row["misc/rollout_duration_ms"] > phases["step"]
    assert row["misc/optimization_duration_ms"] > phases["optimise"]
    assert all(f"  {name} " in printed for name in phases)
    assert row["update"] > 1  # the first chunk warms up
    (trace,) = (folder / "profile").rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert len(events) > 100
    assert any("args" in event and "hlo_op" in event["args"] for event in events)
    assert list((folder / "profile").rglob("*.xplane.pb"))


class Program:
    """Counts its calls; its text is not that of a program that runs."""

    calls = 0

    def as_text(self):
        return PROGRAM

    def __call__(self, state, length):
        self.calls += 1
        return state, {}


def called_twice(profile):
    """The second call is traced."""
    program = Program()
    traced = profile.wrap(program)
    for _ in range(2):
        traced({}, 1)
    assert program.calls == 2
    return profile


def test_the_time_of_tracing_is_not_that_of_the_updates(tmp_path, monkeypatch):
    """Else a run with `--profile` would report some hundred times fewer steps per second."""
    events = []

    @contextlib.contextmanager
    def recording(_self, updates):
        events.append(f"trace {updates}")
        yield
        events.append("read")

    monkeypatch.setattr(Profile, "recording", recording)
    monkeypatch.setattr(chunk, "time", SimpleNamespace(monotonic=lambda: events.append("clock") or len(events)))
    program = Program()
    traced = Profile(tmp_path).wrap(program)
    traced({}, 1)
    events.clear()
    assert traced({}, 2)[2] == 1.0  # between the two clocks
    assert events == ["trace 2", "clock", "clock", "read"]
    assert program.calls == 2


def test_what_cannot_be_profiled_trains_all_the_same(tmp_path):
    """Another profiler is at work: the problem is reported, and the program has run."""
    jax.profiler.start_trace(str(tmp_path / "other"))
    try:
        taken = called_twice(Profile(tmp_path / "profile"))
    finally:
        jax.profiler.stop_trace()
    assert taken.times is None
    assert "profile" in taken.problem.lower()
    assert called_twice(Profile(tmp_path / "o")).problem == "the trace holds no instruction of the update"


def test_a_trace_that_is_not_wanted_leaves_nothing_and_takes_nothing_else(tmp_path):
    """The times of a run that is only traced to a collector: its run folder gets no ten megabytes."""
    called_twice(Profile(tmp_path / "profile"))
    before = sorted(tmp_path.rglob("*"))
    for folder in (tmp_path / "profile", tmp_path / "other"):
        assert called_twice(Profile(folder, is_kept=False)).problem is not None
        assert sorted(tmp_path.rglob("*")) == before
