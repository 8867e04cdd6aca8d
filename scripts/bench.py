"""Measures what docs/benchmarks.md claims: `python scripts/bench.py --suite env --json FILE`. --help names them all."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.runtime.bench import command

    return command.main(argv)


if __name__ == "__main__":
    run_main(main)
