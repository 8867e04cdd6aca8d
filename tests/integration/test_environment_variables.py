"""Variables under which JAX or Python does something else: a command works all the same, or one line names them."""

import pytest
from support.marks import full
from support.scripted_runs import BASE, assert_same_run, flags

PLATFORM = "hint: remove the variable, or set JAX_PLATFORMS=cpu"


@pytest.mark.parametrize(
    ("variables", "error", "hint"),
    [
        ({"JAX_PLATFORMS": "cuda"}, "JAX_PLATFORMS=cuda: JAX finds no such device", PLATFORM),
        full({"JAX_PLATFORMS": "typo"}, "JAX_PLATFORMS=typo: JAX finds no such device", PLATFORM),
        full({"JAX_PLATFORM_NAME": "cuda"}, "JAX_PLATFORM_NAME=cuda: JAX finds no such device", PLATFORM),
        ({"JAX_ENABLE_X64": "maybe"}, "invalid truth value 'maybe' for environment 'JAX_ENABLE_X64'", "hint: "),
        ({"PYTHONOPTIMIZE": "2"}, "python -OO (or PYTHONOPTIMIZE=2) removes docstrings", "hint: "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_variable_with_which_nothing_runs_is_named(scripts, variables, error, hint):
    scripts = scripts._replace(variables=tuple(({"JAX_PLATFORMS": ""} | variables).items()))
    out, err = scripts.run("train_ppo", *flags(**BASE, run_name="new"), code=2)
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith(f"error: {error}")
    assert second.startswith(hint)
    assert not (scripts.cwd / "new").exists()


@pytest.mark.full
def test_a_run_is_the_same_under_the_variables_that_are_ignored(scripts, reference):
    ignored = {"JAX_ENABLE_X64": "1", "JAX_DISABLE_JIT": "1"}
    ignored |= {"JAX_TRANSFER_GUARD": "disallow", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    scripts = scripts._replace(variables=tuple(ignored.items()))
    out, err = scripts.run("doctor")
    assert [
        line for line in out.splitlines() if line.startswith("environment") and "JAX_ENABLE_X64=1 is ignored" in line
    ]
    _, err = scripts.run("train_ppo", *flags(**BASE, run_name="same"))
    assert [line.partition("=")[0] for line in err.splitlines()] == [f"note: {name}" for name in ignored]
    assert_same_run(reference, scripts.cwd / "same")


@pytest.mark.full
def test_a_run_resumed_with_other_random_keys_names_the_variable(scripts, reference):
    scripts = scripts._replace(variables=(("JAX_DEFAULT_PRNG_IMPL", "rbg"),))
    _, err = scripts.run("train_ppo", "--resume", reference, "--num-updates", "30", code=4)
    assert "has random keys of another type than rbg" in err
    assert "JAX_DEFAULT_PRNG_IMPL" in err.splitlines()[1]
