"""A pipeline after two iterations, by hand and in a loop, and copies of their folders that a test may damage."""

import shutil

import pytest
from support.loops import small_loop
from support.pipelines import moved, restored, small_pipeline

from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.iterations.steps import run_iteration


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """(a pipeline after two iterations, their reports)."""
    pipeline = small_pipeline(tmp_path_factory.mktemp("loop"))
    return pipeline, [run_iteration(pipeline), run_iteration(pipeline)]


@pytest.fixture
def copied(finished, tmp_path):
    """The pipeline with a copy of its folder, which a test may damage."""
    with restored(finished[0]) as pipeline:
        shutil.copytree(pipeline.layout.root, tmp_path / pipeline.layout.root.name)
        yield moved(pipeline, tmp_path)


@pytest.fixture
def fresh(finished, tmp_path):
    """The programs of the pipeline, in a folder where it has not begun."""
    with restored(finished[0]) as pipeline:
        yield moved(pipeline, tmp_path)


@pytest.fixture(scope="session")
def finished_loop(tmp_path_factory):
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
def copied_loop(finished_loop, tmp_path):
    """(the programs, a copy of the folder)."""
    pipeline, folder, *_ = finished_loop
    shutil.copytree(folder, tmp_path / "runs")
    return pipeline, tmp_path / "runs"
