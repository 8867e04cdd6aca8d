"""Iterations that another command finishes while a loop does not look: told once, in their order, and gone on from."""

import pytest
from support.loops import FakeClock, small_loop, told

from stoix_like.selfplay import iteration
from stoix_like.selfplay.orchestration import events
from stoix_like.selfplay.orchestration.wiring import wire_pipeline_events


def run_one(loop, kind):
    """Runs a loop until it has finished an iteration itself."""
    if kind == "continuous":
        assert loop.run().successful_iterations == 1
    else:
        master = loop.master(max_iterations=1)
        master.run()
        assert master.stats.successful_iterations == 1


@pytest.mark.parametrize("finished_meanwhile", [1, 2])
@pytest.mark.parametrize("kind", ["continuous", "master"])
def test_another_command_finishes_the_iteration_of_a_loop_between_two_of_its_stages(copied, kind, finished_meanwhile):
    pipeline, folder = copied
    wiring = wire_pipeline_events()

    def another_command(event):
        if event.iteration == 3:
            for _ in range(finished_meanwhile):  # as run_training_loop.py does: the rest of this one, then the next
                iteration.run_iteration(loop.runner.pipeline)

    wiring.subscribe("another", another_command, kinds=(events.SelfplayComplete.kind,))
    with small_loop(pipeline, folder, wiring=wiring, max_iterations=1) as loop:
        run_one(loop, kind)
        last = 3 + finished_meanwhile
        assert loop.keys[16:] == [key for number in range(3, last + 1) for key in told(number, loop.layout)]
        assert loop.layout.iterations() == list(range(last + 1))


def test_another_command_finishes_iterations_while_a_loop_cools_down(copied):
    pipeline, folder = copied
    done = []

    def another_command(clock):
        if not done:
            done.append(iteration.run_iteration(loop.runner.pipeline).iteration)

    with small_loop(pipeline, folder, clock=FakeClock(another_command), max_iterations=2) as loop:
        assert loop.run().successful_iterations == 2
        assert done == [4]
        assert loop.keys[16:] == [key for number in (3, 4, 5) for key in told(number, loop.layout)]
