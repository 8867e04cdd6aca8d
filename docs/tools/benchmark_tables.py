"""Writes docs/benchmarks.md, and the tables of docs/benchmarks/, from the rows that `bench.py --json` wrote there.

`python docs/tools/benchmark_tables.py` rewrites all pages in a clone; a test fails if one is out of date.
`python docs/tools/benchmark_tables.py FILE [PREFIX ...]` prints the rows of a file, such as `search.json search/`.

A page of a suite marks its tables. Rows by the beginning of their names:

    <!-- rows: cpu.json maze_ binpack_ -->
    <!-- end of rows -->

One cell for each row, by parts of its name; with `ratios` only the ratios:

    <!-- grid: promotion.json promotion/{column}/{row} -->
    <!-- end of grid -->

The first page comes from benchmarks.md.template, in which every measured number is named, see `benchmark_numbers`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from benchmark_numbers import filled

from stoix_like.bench.timing.measure import Measurement, row_text
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.console.text import DASH, number_text

PAGE = ROOT / "docs" / "benchmarks.md"
FOLDER = ROOT / "docs" / "benchmarks"
TEMPLATE = Path(__file__).with_name("benchmarks.md.template")
_PART = re.compile(r"(<!-- (rows|grid): (\S+) ([^>]*?) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
_SERIES = re.compile(r"(; )?(losses )?by (iteration|update)\b.*")  # of a note: too long for a cell


def read_rows(file: Path) -> list[Measurement]:
    """The rows of a JSON file."""
    return [Measurement(**row) for row in json.loads(file.read_text(encoding="utf-8"))]


def pages(folder: Path = FOLDER, template: Path = TEMPLATE) -> dict[Path, str]:
    """{page: its text as it should be}: the first page, and that of every suite."""
    suites = {page: with_tables(page.read_text(encoding="utf-8"), folder) for page in sorted(folder.glob("*.md"))}
    rows = {file.stem: read_rows(file) for file in folder.glob("*.json")}
    return {PAGE: filled(template.read_text(encoding="utf-8"), rows)} | suites


def with_tables(text: str, folder: Path) -> str:
    """The page with all marked parts replaced by tables of the files in the folder."""

    def replacement(part: re.Match[str]) -> str:
        begin, kind, file, argument, end = part.groups()
        rows = read_rows(folder / file)
        made = table(rows, argument.split()) if kind == "rows" else grid(rows, *argument.split())
        return f"{begin}\n{made}\n\n{end}"

    return _PART.sub(replacement, text)


def table(rows: list[Measurement], prefixes: list[str]) -> str:
    """A Markdown table: the machine, then one line per row whose name begins with one of the prefixes."""
    chosen = [row for row in rows if row.name.startswith(tuple(prefixes))]
    head = ["| row | value | against | |", "| --- | --- | --- | --- |"]
    return "\n".join([f"{_machine(rows)}\n", *head, *(f"| {' | '.join(_cells(row))} |" for row in chosen)])


def grid(rows: list[Measurement], pattern: str, only: str = "") -> str:
    """A Markdown table with one cell for each row whose name is the pattern, by its parts `{row}` and `{column}`.

    `{row}` and `{column}` are any text; the one that comes first is as short as possible.
    """
    expression = re.escape(pattern).replace(r"\{row\}", "(?P<row>.+)").replace(r"\{column\}", "(?P<column>.+)")
    expression = expression.replace(".+)", ".+?)", 1)
    found = [(match, row) for row in rows if (match := re.fullmatch(expression, row.name))]
    cells = {(match["row"], match["column"]): _short(row, only) for match, row in found}
    columns = list(dict.fromkeys(match["column"] for match, _ in found))
    lines = [["", *(f"`{column}`" for column in columns)], ["---"] * (1 + len(columns))]
    names = dict.fromkeys(match["row"] for match, _ in found)
    lines += [[f"`{name}`", *(cells.get((name, column), DASH) for column in columns)] for name in names]
    units = "" if only else f"; {', '.join(dict.fromkeys(row.unit for _, row in found))}"
    return "\n".join([f"{_machine(rows)}{units}\n", *(f"| {' | '.join(line)} |" for line in lines)])


def _machine(rows: list[Measurement]) -> str:
    machine = next(row for row in rows if row.name == "machine")
    return f"{machine.value:.0f} cores; {machine.note}"


def _cells(row: Measurement) -> list[str]:
    value = f"{number_text(row.value, 4)} {row.unit}" + ("" if row.spread is None else f" ± {row.spread:.1%}")
    against, verdict = DASH, _verdict(row)
    if row.reference is not None:
        against = number_text(row.reference, 4)
    elif row.ceiling is not None and row.share is not None:
        against = f"ceiling {number_text(row.ceiling, 4)}"
    note = _SERIES.sub("", row.note)
    return [f"`{row.name}`", value, against, ". ".join(part for part in (verdict, note) if part).replace("|", "\\|")]


def _short(row: Measurement, only: str) -> str:
    """The cell of a grid."""
    if only == "ratios":
        return _verdict(row)
    spread = "" if row.spread is None else f" ± {row.spread:.1%}"
    return " ".join(part for part in (f"{number_text(row.value, 4)}{spread}", _verdict(row)) if part)


def _verdict(row: Measurement) -> str:
    if row.reference is not None:
        return f"**{row.ratio:.1f} times**" if row.ratio is not None else "no ratio: the spread is larger"
    return f"**{row.share:.0%}**" if row.ceiling is not None and row.share is not None else ""


def main(arguments: list[str]) -> None:
    """Rewrites the pages; with arguments, prints rows of a file instead."""
    if arguments:
        file, *prefixes = arguments
        chosen = tuple(prefixes) or ("",)
        print("\n".join(row_text(row) for row in read_rows(FOLDER / file) if row.name.startswith(chosen)))
        return
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
