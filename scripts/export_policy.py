"""Writes the policy of a run for other programs: `python scripts/export_policy.py runs/NAME [--out FOLDER]`."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.runtime import export_run

    return export_run.main(argv)


if __name__ == "__main__":
    run_main(main)
