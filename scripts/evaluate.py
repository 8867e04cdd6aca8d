"""Scores a run: `python scripts/evaluate.py runs/NAME [--checkpoint best|latest|N] [--num-episodes 2048]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import evaluate

    return evaluate.main(argv)


if __name__ == "__main__":
    run_main(main)
