"""Writes the tables of docs/benchmarks.md from the rows that `bench.py --json` wrote into docs/benchmarks/.

`python docs/tools/benchmark_tables.py` rewrites the page in a clone; a test fails if it is out of date. The rows of a
file whose names begin with one of the prefixes are put between the markers `<!-- rows: cpu.json maze_ binpack_ -->` and
`<!-- end of rows -->`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from stoix_like.bench.timing.measure import Measurement
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.console.text import DASH, number_text

PAGE = ROOT / "docs" / "benchmarks.md"
_PART = re.compile(r"(<!-- rows: (\S+) ([^>]*?) -->\n).*?(<!-- end of rows -->)", re.DOTALL)


def with_tables(text: str, folder: Path) -> str:
    """The page with all marked parts replaced by tables of the files in the folder."""

    def replacement(part: re.Match[str]) -> str:
        begin, file, prefixes, end = part.groups()
        rows = [Measurement(**row) for row in json.loads((folder / file).read_text(encoding="utf-8"))]
        return f"{begin}\n{table(rows, prefixes.split())}\n\n{end}"

    return _PART.sub(replacement, text)


def table(rows: list[Measurement], prefixes: list[str]) -> str:
    """A Markdown table: the machine, then one line per row whose name begins with one of the prefixes."""
    machine = next(row for row in rows if row.name == "machine")
    chosen = [row for row in rows if row.name.startswith(tuple(prefixes))]
    head = ["| row | value | against | |", "| --- | --- | --- | --- |"]
    cores = f"{machine.value:.0f} cores; {machine.note}"
    return "\n".join([f"{cores}\n", *head, *(f"| {' | '.join(_cells(row))} |" for row in chosen)])


def _cells(row: Measurement) -> list[str]:
    value = f"{number_text(row.value, 4)} {row.unit}" + ("" if row.spread is None else f" ± {row.spread:.1%}")
    against, verdict = DASH, ""
    if row.reference is not None:
        against = number_text(row.reference, 4)
        verdict = f"**{row.ratio:.1f} times**" if row.ratio is not None else "no ratio: the spread is larger"
    elif row.ceiling is not None and row.share is not None:
        against, verdict = f"ceiling {number_text(row.ceiling, 4)}", f"**{row.share:.0%}**"
    return [
        f"`{row.name}`",
        value,
        against,
        ". ".join(part for part in (verdict, row.note) if part).replace("|", "\\|"),
    ]


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), PAGE.parent / "benchmarks"), encoding="utf-8")
