"""Searches leaves for the best score: `python scripts/sweep.py sweep/ppo_maze [--num-trials 40] [--study NAME]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import sweep

    return sweep.main(argv)


if __name__ == "__main__":
    run_main(main)
