"""What a command tells goes where it always went, and nowhere if nobody wants to hear it."""

from stoix_like.runtime.console.reporter import SILENT, Reporter, lossy


def test_results_and_notes_are_printed_to_stdout_and_the_rest_to_stderr(capfd):
    for name in Reporter._fields:
        getattr(Reporter(), name)(f"a line of {name}")
    assert capfd.readouterr() == (
        "a line of info\nnote: a line of note\n",
        "warning: a line of warning\na line of progress\n",
    )


def test_a_command_replaces_what_it_shows_elsewhere(capfd):
    told = []
    reporter = SILENT._replace(note=told.append)
    for tell in reporter:
        tell("heard")
    assert told == ["heard"]
    assert capfd.readouterr() == ("", "")


def test_a_line_that_cannot_be_printed_is_lost_and_raises_nothing():
    told, is_full = [], []

    def show(line):
        if is_full:
            raise OSError(28, "No space left on device")
        told.append(line)

    reporter = lossy(Reporter(show, show, show, show))
    for tell in reporter:
        tell("one")
        is_full.append(True)
        tell("two")
        is_full.clear()
    assert told == ["one"] * 4
