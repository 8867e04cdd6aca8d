"""A folder in which a loop has made two iterations, and copies of it that a test may damage."""

import shutil

import pytest
from support.loops import small_loop
from support.pipelines import small_pipeline

from stoix_like.selfplay.events.wiring import wire_pipeline_events


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """(the programs of a pipeline, the folder, what the loop has done, the loop)."""
    folder = tmp_path_factory.mktemp("continuous")
    pipeline = small_pipeline(folder)
    seen = []
    wiring = wire_pipeline_events()
    wiring.subscribe("test", lambda event: seen.append(event.key), from_start=True)
    with small_loop(pipeline, folder, max_iterations=2, wiring=wiring) as loop:
        stats = loop.run()
        loop.kept, loop.kept_keys = loop.log.read(), loop.keys
        assert seen == [logged.event.key for logged in loop.kept]
    return pipeline, folder, stats, loop


@pytest.fixture
def copied(finished, tmp_path):
    """(the programs, a copy of the folder)."""
    pipeline, folder, *_ = finished
    shutil.copytree(folder, tmp_path / "runs")
    return pipeline, tmp_path / "runs"
