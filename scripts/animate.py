"""Draws one greedy episode of a run as a GIF: `python scripts/animate.py runs/NAME [--checkpoint best|latest|N]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import animate

    return animate.main(argv)


if __name__ == "__main__":
    run_main(main)
