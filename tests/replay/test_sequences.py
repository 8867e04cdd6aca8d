"""The sequence buffer against one deque per environment: what was added comes out, in order, and nothing else does.

Every step carries its environment and its number in time, so a sampled window says where it must have come from.
"""

from collections import Counter, deque
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like import replay
from stoix_like.algorithms import minibatch
from stoix_like.errors import ConfigError

NUM_ENVS, LENGTH, BATCH = 4, 3, 8
SIZES = {
    "num_envs": NUM_ENVS,
    "capacity_steps": 7 * NUM_ENVS + 3,  # 7 time steps; the rest is less than one
    "rollout_length": 3,
    "sequence_length": LENGTH,
    "batch_size": BATCH,
    "sample_period": 1,
    "num_shards": 2,
}


def numbered_steps(start, num_steps, num_envs=NUM_ENVS, seed=0):
    """Steps [T, N, ...] with leaves of all types. `time` is one more than the step's number: 0 is an empty place."""
    random = np.random.default_rng((seed, start))
    shape = (num_steps, num_envs)
    time = np.broadcast_to(np.arange(start, start + num_steps)[:, None], shape)
    return {
        "time": (time + 1).astype(np.int32),
        "env": np.broadcast_to(np.arange(num_envs), shape).astype(np.int16),
        "view": {"cells": random.integers(0, 256, (*shape, 2, 3), np.uint8)},
        "mask": random.random((*shape, 5)) < 0.5,
        "reward": random.standard_normal(shape).astype(np.float32),
        "half": random.standard_normal((*shape, 2)).astype(jnp.bfloat16),
    }


EXAMPLE = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), numbered_steps(0, 1))


@cache
def jitted(**changes):
    """A buffer of `SIZES` and changes, under jit; `sample` takes keys [K] and gives leaves [K, B, L, ...]."""
    buffer = replay.make_buffer(**(SIZES | changes))
    sample = jax.jit(jax.vmap(buffer.sample, in_axes=(None, 0)))
    return replay.Buffer(jax.jit(buffer.init), jax.jit(buffer.add), sample, jax.jit(buffer.can_sample))


def filled(buffer, num_steps, chunk=1):
    """The state after steps 0 .. num_steps - 1, added `chunk` at a time."""
    state = buffer.init(EXAMPLE)
    for start in range(0, num_steps, chunk):
        state = buffer.add(state, numbered_steps(start, chunk))
    return state


def keys_of(seed, number):
    return jax.random.split(jax.random.key(seed), number)


def windows(sequences):
    """Sequences with leading axes [K, B, L] as a list of windows, leaves [L, ...] on the host."""
    merged = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), sequences)
    return [jax.tree.map(lambda x, i=i: x[i], merged) for i in range(len(merged["time"]))]


def starts(sequences):
    """How often each (environment, time) began a sequence."""
    envs, times = (np.asarray(sequences[name])[..., 0].ravel().tolist() for name in ("env", "time"))
    return Counter((n, t - 1) for n, t in zip(envs, times, strict=True))


def assert_held_by(deques, sequences, period):
    """Every window is a run of steps of one deque, equal in all leaves, that begins at a multiple of `period`."""
    for window in windows(sequences):
        held = deques[int(window["env"][0])]
        place = int(window["time"][0] - held[0]["time"])
        length = len(window["time"])
        assert place >= 0
        assert place % period == 0
        assert place + length <= len(held)
        expected = jax.tree.map(lambda *x: np.stack(x), *[held[i] for i in range(place, place + length)])
        jax.tree.map(np.testing.assert_array_equal, window, expected)
        jax.tree.map(lambda a, b: np.testing.assert_equal(a.dtype, b.dtype), window, expected)


def play_against_deques(buffer, *, num_envs, time_axis, length, period, chunks, num_adds=14, seed=0):
    """Random adds, each followed by samples that are compared with deques that saw the same steps."""
    random = np.random.default_rng(seed)
    deques = [deque(maxlen=time_axis) for _ in range(num_envs)]
    state, time, num_compared = buffer.init(EXAMPLE), 0, 0
    for number in range(num_adds):
        steps = numbered_steps(time, int(random.choice(chunks)), num_envs, seed)
        state = buffer.add(state, steps)
        time += len(steps["time"])
        for t, n in np.ndindex(steps["time"].shape):
            deques[n].append(jax.tree.map(lambda x, i=(t, n): x[i], steps))
        gate = buffer.can_sample(state)
        assert (gate.shape, gate.dtype, bool(gate)) == ((), jnp.bool_, time >= length)
        if time >= length:
            assert_held_by(deques, buffer.sample(state, keys_of(number, 4)), period)
            num_compared += 1
    assert num_compared > num_adds // 2
    assert time > 2 * time_axis  # the ring went round more than once


DEQUE_CASES = [
    full(4, 2, 7, 3, 1, 8, (1, 3)),
    (4, 4, 7, 3, 2, 8, (2, 5)),  # adds that wrap, starts that move with the ring's head
    full(3, 1, 12, 5, 5, 6, (4, 3)),
    (8, 8, 6, 6, 1, 8, (1, 6)),  # one window fills the ring; an add replaces everything
    full(2, 2, 20, 2, 1, 2, (7,)),
    full(6, 2, 9, 1, 1, 4, (2, 9)),  # single steps
]


@pytest.mark.parametrize(("num_envs", "shards", "time_axis", "length", "period", "batch", "chunks"), DEQUE_CASES)
def test_what_is_sampled_equals_a_deque(num_envs, shards, time_axis, length, period, batch, chunks):
    sizes = {"num_envs": num_envs, "num_shards": shards, "capacity_steps": time_axis * num_envs, "batch_size": batch}
    buffer = jitted(**sizes, rollout_length=max(chunks), sequence_length=length, sample_period=period)
    told = {"num_envs": num_envs, "length": length, "period": period, "chunks": chunks}
    play_against_deques(buffer, time_axis=time_axis, seed=time_axis, **told)


def reading_from_place_0(buffer):
    """Sequences that cross the head of a full ring."""

    def sample(state, keys):
        start = jnp.where(state.is_full, 0, state.current_index)
        return buffer.sample(state._replace(current_index=start), keys)

    return buffer._replace(sample=sample)


def environments_that_change_places(buffer):
    """One add in another order of the environments than the next."""

    def add(state, steps):
        return buffer.add(state, jax.tree.map(lambda x: np.roll(x, steps["time"][0, 0], axis=1), steps))

    return buffer._replace(add=add)


FAULTS = [reading_from_place_0, environments_that_change_places]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deques_see_a_planted_fault(fault):
    sizes = {"num_envs": NUM_ENVS, "time_axis": 7, "length": LENGTH, "period": 1, "chunks": (3,)}
    play_against_deques(jitted(), **sizes)
    with pytest.raises(AssertionError):
        play_against_deques(fault(jitted()), **sizes)


@pytest.mark.parametrize("period", [1, 2, 3])
@pytest.mark.parametrize("num_steps", [3, 5, 7, 9, 18])  # one window, some, just full, and with the head at 2 and 4
def test_every_valid_start_is_reached_equally_often_and_no_other(period, num_steps):
    buffer = jitted(sample_period=period)
    found = starts(buffer.sample(filled(buffer, num_steps), keys_of(num_steps, 400)))
    oldest = max(0, num_steps - 7)
    valid = {(n, t) for n in range(NUM_ENVS) for t in range(oldest, num_steps - LENGTH + 1, period)}
    assert set(found) == valid
    expected = 400 * BATCH / len(valid)
    assert all(abs(count - expected) < 6 * expected**0.5 for count in found.values())  # six standard errors


def test_leaves_keep_their_types_and_a_state_has_strong_ones_in_distinct_empty_buffers():
    state = jitted().init(EXAMPLE)
    assert jax.tree.map(lambda x: x.dtype, state.experience) == jax.tree.map(lambda x: x.dtype, EXAMPLE)
    per_step = 4 + 2 + 6 + 5 + 4 + 4
    assert replay.num_bytes(EXAMPLE) == per_step
    assert replay.num_bytes(EXAMPLE, 28) == 28 * per_step == sum(x.nbytes for x in jax.tree.leaves(state.experience))
    assert {x.shape[:3] for x in jax.tree.leaves(state.experience)} == {(2, 2, 7)}
    buffer = replay.make_buffer(**SIZES)
    example = {"reward": jnp.asarray(1.0), "count": jnp.asarray(2)}  # both weakly typed
    assert all(x.weak_type for x in example.values())
    state = jax.jit(buffer.init)(example)
    leaves = jax.tree.leaves(state)
    assert not any(x.weak_type for x in leaves)
    assert (state.current_index.dtype, state.current_index.shape) == (jnp.int32, ())
    assert (state.is_full.dtype, state.is_full.shape) == (jnp.bool_, ())
    assert len({x.unsafe_buffer_pointer() for x in leaves}) == len(leaves)
    assert not any(np.any(x) for x in leaves)
    steps = jax.tree.map(lambda x: jnp.ones((3, NUM_ENVS), x.dtype), example)
    after = jax.eval_shape(buffer.add, state, steps)
    kinds = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)
    assert kinds(after) == kinds(state)


def test_one_compilation_serves_all_adds_and_a_donated_state_is_written_in_place():
    buffer = replay.make_buffer(**SIZES)
    add = jax.jit(buffer.add, donate_argnums=0)
    state = jax.jit(buffer.init)(EXAMPLE)
    place = state.experience["time"].unsafe_buffer_pointer()
    for start in range(0, 12, 3):
        before, state = state, add(state, numbered_steps(start, 3))
        assert before.experience["time"].is_deleted()
    assert add._cache_size() == 1
    assert state.experience["time"].unsafe_buffer_pointer() == place


@pytest.mark.parametrize(("sizes", "shards"), [((64, 64), 8), ((12, 32), 4), ((6, 16), 2), ((64, 15), 1), ((3, 8), 1)])
def test_number_of_shards_divides_environments_and_sequences(sizes, shards):
    assert replay.num_logical_shards(*sizes) == shards


@pytest.mark.parametrize("shards", [full(1), full(2), 4, full(8)])
def test_a_shard_serves_its_own_environments_only_and_as_many_rows_as_every_other(shards):
    buffer = jitted(num_envs=8, num_shards=shards, capacity_steps=56)
    state = buffer.add(buffer.init(EXAMPLE), numbered_steps(0, 5, 8))
    rows = np.asarray(buffer.sample(state, keys_of(0, 50))["env"]).reshape(50, shards, -1)
    grouped = minibatch.shard_rows(np.broadcast_to(np.arange(8), (1, 8)), shards)  # [shards, N / shards]
    for shard in range(shards):
        assert set(rows[:, shard].ravel()) == set(np.asarray(grouped[shard]))


def test_shards_draw_independently_and_of_their_own_steps_alone():
    """With one key for all, every shard would give the same times and the same place among its environments."""
    buffer = jitted()
    drawn = buffer.sample(filled(buffer, 7), keys_of(0, 20))
    for place in (np.asarray(drawn["time"])[..., 0], np.asarray(drawn["env"])[..., 0] % 2):
        assert 0.2 < np.mean(place[:, :4] != place[:, 4:]) < 0.95
    # So no row has to travel between devices, and how many there are makes no difference.
    steps = numbered_steps(0, 3)
    changed = jax.tree.map(lambda x: np.concatenate([x[:, :2], np.zeros_like(x[:, 2:])], axis=1), steps)
    first, second = (buffer.sample(buffer.add(buffer.init(EXAMPLE), s), keys_of(0, 5)) for s in (steps, changed))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:, :4], b[:, :4]), first, second)
    assert np.asarray(first["time"][:, 4:] > 0).all()
    assert (np.asarray(second["time"][:, 4:]) == 0).all()


DIVIDED = "is not divisible by the 2 logical shards; use"
SAMPLED = "spo.sample_sequence_length = 3"
PERIOD = f"spo.sample_period: 4 is above {SAMPLED}, so 1 of every 4 steps would never be sampled; use at most 3"
RING = "spo.replay_buffer_size: {} steps of num_envs = 4 environments are {} of each, and {} at once; use at least {}"
ADDED = "training_core.rollout_length = {} are added"
TOO_SHORT = RING.format(31, 7, ADDED.format(8), 32) + ", or a rollout_length of at most 7"
LESS_THAN_ONE = [RING.format(3, 0, ADDED.format(1), 4), RING.format(3, 0, f"{SAMPLED} are sampled", 12)]
UNCOUNTED = "spo.replay_buffer_size: 8,589,934,592 cannot be counted; use at most 4,294,967,295"
REFUSED = [
    ({"num_envs": 0}, ["environment.num_envs: must be >= 1, got 0"], {"num_envs": 1}),
    ({"num_envs": 5}, [f"environment.num_envs: 5 {DIVIDED} 4 or 6"], {"num_envs": 4}),
    ({"batch_size": 9}, [f"spo.batch_size: 9 {DIVIDED} 8 or 10"], {"batch_size": 10}),
    ({"batch_size": 1}, [f"spo.batch_size: 1 {DIVIDED} 2"], {"batch_size": 2}),
    ({"sample_period": 4}, [PERIOD], {"sample_period": 3}),
    ({"rollout_length": 8}, [TOO_SHORT], {"capacity_steps": 32}),
    ({"capacity_steps": 3, "rollout_length": 1}, LESS_THAN_ONE, {"capacity_steps": 12}),
    ({"capacity_steps": 2**33}, [UNCOUNTED], {"capacity_steps": 4_294_967_295}),
]


@pytest.mark.parametrize(("changes", "lines", "remedy"), REFUSED)
def test_impossible_sizes_are_refused_with_values_that_work(changes, lines, remedy):
    with pytest.raises(ConfigError) as refused:
        replay.make_buffer(**(SIZES | changes))
    assert refused.value.problems == lines
    shards = {"num_shards": 1} if remedy == {"num_envs": 1} else {}
    replay.make_buffer(**(SIZES | changes | remedy | shards))


def test_all_problems_are_told_at_once_and_steps_of_other_forms_refused():
    with pytest.raises(ConfigError) as refused:
        replay.make_buffer(**(SIZES | {"batch_size": 3, "sample_period": 9, "sequence_length": 8}))
    assert [line.partition(":")[0] for line in refused.value.problems] == [
        "spo.batch_size",
        "spo.replay_buffer_size",
        "spo.sample_period",
    ]
    buffer = replay.make_buffer(**SIZES)
    state = jax.eval_shape(buffer.init, EXAMPLE)
    for wrong in (
        numbered_steps(0, 3, 6),
        numbered_steps(0, 8),
        numbered_steps(0, 3) | {"env": np.zeros((3, 4), np.int32)},
    ):
        with pytest.raises((AssertionError, TypeError, ValueError)):
            jax.eval_shape(buffer.add, state, wrong)
