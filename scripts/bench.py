"""Measures what docs/benchmarks.md claims: `python scripts/bench.py --suite env --json FILE`. --help names them all."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.machine import bench

    return bench.main(argv)


if __name__ == "__main__":
    run_main(main)
