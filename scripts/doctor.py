"""Shows what is installed, which devices there are and what can be written: `python scripts/doctor.py`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.machine import doctor

    return doctor.main(argv)


if __name__ == "__main__":
    run_main(main)
