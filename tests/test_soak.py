"""A long run is as fast at its end as at its beginning, and no larger (`make test-slow`).

`STOIX_LIKE_SOAK_SECONDS` says how long each run is watched; ten minutes unless it is set. A checkpoint leaves 46 KiB
behind in tensorstore (docs/log.md): a longer run has as many of them as one of ten minutes, and more of all else.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.paths import ROOT

SECONDS = float(os.environ.get("STOIX_LIKE_SOAK_SECONDS", "600"))
SAVE_INTERVAL = round(100 * max(1.0, SECONDS / 600))
#: Small enough to make many chunks, checkpoints and evaluations in that time.
SMALL = f"--num-updates 10000000 --eval-interval 200 --save-interval {SAVE_INTERVAL} --keep-last-n 2".split()
SMALL += ["--num-eval-envs", "32", "--num-eval-episodes", "32", "--no-decay-learning-rates"]
RUNS = {
    "ppo": ["train_ppo", "--config", "ppo/maze_mlp", "--num-envs", "16", "--rollout-length", "32"],
    "spo": ["train_spo", "--config", "spo/maze_mlp", "--num-envs", "16", "--epochs", "2"],
}


def resident_mib(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", RUNS)
def test_a_long_run_neither_grows_nor_slows_down(algorithm, tmp_path):
    script, *argv = RUNS[algorithm]
    command = [sys.executable, ROOT / "scripts" / f"{script}.py", *argv, *SMALL, "--save-dir", tmp_path]
    with subprocess.Popen([*map(str, command), "--run-name", "run"], stdout=subprocess.DEVNULL) as process:
        try:
            while not (tmp_path / "run" / "checkpoints" / f"{SAVE_INTERVAL}").is_dir():  # compiled, evaluated, saved
                assert process.poll() is None
                time.sleep(1.0)
            sizes, end = [], time.monotonic() + SECONDS
            while time.monotonic() < end:
                assert process.poll() is None
                sizes.append(resident_mib(process))
                time.sleep(2.0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 130
        finally:
            process.kill()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [row["actor/steps_per_second"] for row in rows if "actor/steps_per_second" in row][5:]
    third, sixth = len(rates) // 3, len(sizes) // 6
    early, late = (statistics.median(part) for part in (rates[:third], rates[-third:]))
    grown = max(sizes[-sixth:]) - max(sizes[:sixth])
    assert late > 0.85 * early, (early, late)  # medians; other work on the machine comes and goes
    assert grown < 24.0, (sizes[:: max(1, len(sizes) // 20)], "MiB")
