"""Plays the match of a candidate again, move by move: `python scripts/verify_evidence.py PIPELINE --iteration N`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.selfplay import verify_evidence

    return verify_evidence.main(argv)


if __name__ == "__main__":
    run_main(main)
