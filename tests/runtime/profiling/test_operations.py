"""Operations of a compiled program, counted by hand and in a program that XLA has compiled."""

import jax
import jax.numpy as jnp

from stoix_like.ops.phases import phase
from stoix_like.runtime.profiling.operations import Operations, count_operations
from stoix_like.runtime.profiling.phase_times import scopes_of

PROGRAM = """HloModule jit_chunk, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %sine.1 = f32[8]{0} sine(%p), metadata={op_name="jit(chunk)/phase_step/sin"}
  ROOT %add.1 = f32[8]{0} add(%sine.1, %p), metadata={op_name="jit(chunk)/phase_step/add"}
}

%inner (arg.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %arg.1 = (s32[], f32[8]{0}) parameter(0)
  %x.1 = f32[8]{0} get-tuple-element(%arg.1), index=1
  %fusion.1 = f32[8]{0} fusion(%x.1), kind=kLoop, calls=%fused
  %copy.1 = f32[8]{0} copy(%fusion.1)
  ROOT %tuple.1 = (s32[], f32[8]{0}) tuple(%x.1, %copy.1)
}

%below_three (arg.2: (s32[], f32[8])) -> pred[] {
  %arg.2 = (s32[], f32[8]{0}) parameter(0)
  %three = s32[] constant(3)
  ROOT %compare.1 = pred[] compare(%three, %three), direction=LT
}

%short (s: f32[8]) -> f32[8] {
  ROOT %s = f32[8]{0} parameter(0)
}

%long (l: f32[8]) -> f32[8] {
  %l = f32[8]{0} parameter(0)
  %dot.1 = f32[8]{0} dot(%l, %l), metadata={op_name="jit(chunk)/phase_network/dot"}
  ROOT %dot.2 = f32[8]{0} dot(%dot.1, %l), metadata={op_name="jit(chunk)/phase_network/dot"}
}

%outer (arg.3: (s32[], f32[8])) -> (s32[], /*index=1*/f32[8]) {
  %arg.3 = (s32[], f32[8]{0}) parameter(0)
  %while.1 = (s32[], /*index=1*/f32[8]{0}) while(%arg.3), LOOP, backend_config={"known_trip_count":{"n":"3"},"a":1}
  %x.3 = f32[8]{0} get-tuple-element(%while.1), index=1
  %either.1 = f32[8]{0} conditional(%x.3, %x.3, %x.3), branch_computations={%short, %long}
  %either.2 = f32[8]{0} conditional(%x.3, %x.3, %x.3), true_computation=%long, false_computation=%short
  %call.1 = f32[8]{0} call(%either.1), to_apply=%long
  ROOT %tuple.3 = (s32[], f32[8]{0}) tuple(%arg.3, %call.1)
}

ENTRY %main (x: f32[8]) -> (s32[], f32[8]) {
  %x = f32[8]{0} parameter(0)
  ROOT %while.2 = (s32[], f32[8]{0}) while(%x), condition=%below_three, body=%outer
}
""".replace("LOOP", "condition=%below_three, body=%inner")


def test_operations_by_hand():
    """The inner loop runs a fusion of `step`, a copy and a comparison three times.

    Around it stand the longer branches of two conditionals and a call, of two products each, and one more comparison.
    The outer loop does not tell its trips.
    """
    found = count_operations(PROGRAM, scopes_of(PROGRAM))
    assert found == Operations({"step": 3, "other": 3 * 2 + 1, "network": 2 + 2 + 2}, ("while.2",))
    assert count_operations(PROGRAM, scopes_of(PROGRAM), of_one_trip=True) == found._replace(unknown=())
    endless = PROGRAM.replace('"known_trip_count"', '"trips"')
    assert count_operations(endless, scopes_of(endless), of_one_trip=True).unknown == ("while.1",)


def test_a_compiled_loop_has_as_many_operations_as_trips():
    """Ten and twenty steps of one dot product each: the difference is that of ten steps."""

    def program(length):
        def step(x, _):
            with phase("network"):
                return jnp.tanh(x @ x), None

        compiled = jax.jit(lambda x: jax.lax.scan(step, x, None, length)[0]).lower(jnp.ones((16, 16))).compile()
        return count_operations(compiled.as_text(), scopes_of(compiled.as_text()))

    ten, twenty = program(10), program(20)
    assert ten.unknown == twenty.unknown == ()
    assert twenty.of_phases["network"] == 2 * ten.of_phases["network"] >= 20
