"""The work on a loop's own past grows with its iterations, and not with their square."""

import pytest
from support.loop_records import count_reads, derive_events, know_shards, write_iterations

from stoix_like.selfplay.files.folders import Layout


@pytest.mark.parametrize("counts", [(30, 60), pytest.param((1000, 2000), marks=pytest.mark.full)])
@pytest.mark.parametrize(("work", "reads"), [(derive_events, 7), (know_shards, 1)])
def test_each_manifest_is_read_as_often_however_many_there_are(tmp_path, work, reads, counts):
    """Of events: of six stages, that of `export` twice. Of the store: one, in a process that syncs each time."""
    found = []
    for count in counts:
        layout = Layout(tmp_path / str(count) / "g_2p")
        write_iterations(layout, count)
        found.append(count_reads(lambda layout=layout: work(layout)))
    assert found[1] - found[0] == reads * (counts[1] - counts[0])
