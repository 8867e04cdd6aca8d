"""Variables of JAX with which no command could work."""

import pytest

from stoix_like.runtime.console.jax_variables import ignore_unusable


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("JAX_ENABLE_X64", "1", "everything is computed in float32"),
        ("JAX_ENABLE_X64", "True", "everything is computed in float32"),
        ("JAX_ENABLE_X64", "0", None),
        ("JAX_DISABLE_JIT", "on", "the commands compile their programs"),
        ("JAX_DISABLE_JIT", "false", None),
        ("JAX_TRANSFER_GUARD", "disallow", "the commands move arrays between host and device"),
        ("JAX_TRANSFER_GUARD_HOST_TO_DEVICE", "disallow", "the commands move arrays between host and device"),
        ("JAX_TRANSFER_GUARD", "log", None),
        ("JAX_NUMPY_DTYPE_PROMOTION", "strict", "environments add numbers of different types"),
        ("JAX_ENABLE_X64", "maybe", None),  # JAX refuses it itself, and names it
        ("JAX_DEBUG_NANS", "1", None),
    ],
)
def test_variables_with_which_the_commands_could_not_work_are_removed_with_a_note(variable, value, why):
    environ = {variable: value, "HOME": "/home"}
    notes = ignore_unusable(environ)
    assert notes == (() if why is None else (f"{variable}={value} is ignored: {why}",))
    assert environ == {"HOME": "/home"} | ({variable: value} if why is None else {})
