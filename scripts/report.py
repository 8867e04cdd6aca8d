"""Puts runs into one HTML file: `python scripts/report.py RUN... [--out report.html]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import report

    return report.main(argv)


if __name__ == "__main__":
    run_main(main)
