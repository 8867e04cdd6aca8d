"""Puts runs into one HTML file: `python scripts/report.py RUN... [--out report.html]`."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.runtime import html_report

    return html_report.main(argv)


if __name__ == "__main__":
    run_main(main)
