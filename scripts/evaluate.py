"""Scores a run: `python scripts/evaluate.py runs/NAME [--checkpoint best|latest|N] [--num-episodes 2048]`."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.runtime import evaluate_run

    return evaluate_run.main(argv)


if __name__ == "__main__":
    run_main(main)
