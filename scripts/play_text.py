"""Shows episodes of a language agent: `python scripts/play_text.py --model runs/A --episodes 4`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import play_text

    return play_text.main(argv)


if __name__ == "__main__":
    run_main(main)
