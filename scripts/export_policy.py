"""Writes the policy of a run for other programs: `python scripts/export_policy.py runs/NAME [--out FOLDER]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import export

    return export.main(argv)


if __name__ == "__main__":
    run_main(main)
