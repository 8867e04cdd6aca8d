"""Draws one greedy episode of a run as a GIF: `python scripts/animate.py runs/NAME [--checkpoint best|latest|N]`."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.runtime import animate_run

    return animate_run.main(argv)


if __name__ == "__main__":
    run_main(main)
