"""Games on one device and spread over two, in a process of its own that has two."""

import json
import os
import subprocess
import sys

import pytest
from support.paths import ROOT

PROGRAM = ROOT / "tests" / "support" / "sharded_games.py"


@pytest.mark.full
@pytest.mark.parametrize("name", ["hex8", "square8:3"])
def test_two_devices_play_the_same_games(name):
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, PROGRAM, name], env=environment, check=False, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["differ"] == 0
    assert found["over"] > 10
