"""What the tests of loops measure."""

import pytest
from support.loops import small_loop
from support.pipelines import small_pipeline


@pytest.fixture(scope="session")
def looped(tmp_path_factory):
    """A folder in which a loop has made three iterations. Only read it."""
    folder = tmp_path_factory.mktemp("looped")
    with small_loop(small_pipeline(folder), folder, max_iterations=3) as loop:
        loop.run()
    return folder
