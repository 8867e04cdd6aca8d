"""Makes a bank of levels of a text world: `python scripts/make_levels.py TASK --out FILE`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.machine import make_levels

    return make_levels.main(argv)


if __name__ == "__main__":
    run_main(main)
