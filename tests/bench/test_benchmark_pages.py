"""docs/benchmarks.md, the pages of the suites and their figures are what the rows of docs/benchmarks/*.json say."""

import json
import re

import benchmark_figures as figures
import benchmark_tables as document
import pytest
from benchmark_numbers import filled

from stoix_like.bench.timing.measure import Measurement
from stoix_like.errors import ConfigError

ROWS = [
    Measurement("machine", 2, "cores", note="cpu; jax 1"),
    Measurement("maze_x/64", 1234.5, "steps/s", 0.05, 100.0, 12.3, note="reference: w"),
    Measurement("maze_y/64", 0.012345, "share", 0.2, 1.0, None, note="a|b"),
    Measurement("ppo_z", 50.0, "steps/s", ceiling=200.0, share=0.25),
    Measurement("rating", 1325.0, "Elo", note="iteration 75; by iteration, * became champion: 0* 230, 1* 795"),
]
TEMPLATE = document.TEMPLATE.read_text(encoding="utf-8")


def write_rows(folder, rows=ROWS):
    (folder / "cpu.json").write_text(json.dumps([row._asdict() for row in rows]))


def test_every_page_and_every_figure_is_up_to_date():
    assert [page.name for page, text in document.pages().items() if page.read_text(encoding="utf-8") != text] == [], (
        "run make docs"
    )
    drawn = {name: figures.drawn_digest(document.FOLDER / name) for name in figures.FIGURES}
    assert drawn == {name: figures.digest(figure) for name, figure in figures.FIGURES.items()}, "run make docs"


def test_no_row_and_no_figure_is_without_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in document.pages() if page != document.PAGE)
    assert [file.name for file in document.FOLDER.glob("*.json") if file.name not in text] == []
    assert {file.name for file in document.FOLDER.glob("*.png")} == set(figures.FIGURES)
    assert [name for name in figures.FIGURES if f"]({name})" not in text] == []


def test_the_first_page_can_be_read_in_five_minutes_leads_to_every_suite_and_types_no_headline():
    page = document.PAGE.read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 150
    assert len(page.split()) <= 1800  # cells of tables are many of them
    assert [path.name for path in document.FOLDER.glob("*.md") if f"(benchmarks/{path.name}" not in page] == []
    cells = [line.split(" | ")[1] for line in TEMPLATE.splitlines() if re.match(r"\| .* \|.*\]\(benchmarks/", line)]
    assert len(cells) > 30
    typed = [cell for cell in cells if re.search(r"\d", re.sub(r"\{\{.*?\}\}", "", cell))]
    assert typed == ["0.9 after {{gpu_learning learning/gpu/ppo/quick/1024/0.9}} s of updates"]  # what was waited for


def test_rows_are_written_between_their_marks_without_series(tmp_path):
    write_rows(tmp_path)
    page = "before\n<!-- rows: cpu.json maze_ ppo_ rating -->\nold\n<!-- end of rows -->\nafter\n"
    written = document.with_tables(page, tmp_path)
    assert written.splitlines() == [
        "before",
        "<!-- rows: cpu.json maze_ ppo_ rating -->",
        "",
        "2 cores; cpu; jax 1",
        "",
        "| row | value | against | |",
        "| --- | --- | --- | --- |",
        "| `maze_x/64` | 1,234 steps/s ± 5.0% | 100 | **12.3 times**. reference: w |",
        "| `maze_y/64` | 0.01235 share ± 20.0% | 1 | no ratio: the spread is larger. a\\|b |",
        "| `ppo_z` | 50 steps/s | ceiling 200 | **25%** |",
        "| `rating` | 1,325 Elo | – | iteration 75 |",
        "",
        "<!-- end of rows -->",
        "after",
    ]
    assert document.with_tables(written, tmp_path) == written


def test_a_grid_has_a_cell_for_each_row_and_a_dash_where_there_is_none(tmp_path):
    rows = [
        ROWS[0],
        Measurement("scale/ppo/envs/64", 10.0, "steps/s", 0.05, ceiling=20.0, share=0.5),
        Measurement("scale/ppo/envs/1024/particles/4", 12.0, "steps/s"),
        Measurement("scale/spo/envs/64", 3.0, "steps/s", reference=6.0, ratio=0.5),
        Measurement("other", 1.0, "s"),
    ]
    write_rows(tmp_path, rows)
    marked = "<!-- grid: cpu.json scale/{{row}}/envs/{{column}}{} -->\n<!-- end of grid -->\n"
    assert document.with_tables(marked.format(""), tmp_path).splitlines()[2:-2] == [
        "2 cores; cpu; jax 1; steps/s",
        "",
        "|  | `64` | `1024/particles/4` |",
        "| --- | --- | --- |",
        "| `ppo` | 10 ± 5.0% **50%** | 12 |",
        "| `spo` | 3 **0.5 times** | – |",
    ]
    assert document.with_tables(marked.format(" ratios"), tmp_path).splitlines()[-3] == "| `spo` | **0.5 times** | – |"


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("cpu maze_x/64", "1,234"),
        ("cpu maze_x/64 reference", "100"),
        ("cpu maze_x/64 ratio", "12.3"),
        ("cpu maze_x/64 spread", "5.0 %"),
        ("cpu ppo_z share", "25 %"),
        ("cpu maze_* max", "1,234"),
        ("cpu maze_* reference min", "1"),
        ("cpu maze_* mean :.1f", "617.3"),
        ("cpu rating / cpu ppo_z", "26.5"),
        ("cpu maze_x/64 / cpu ppo_z :.0f", "25"),
    ],
)
def test_a_named_number_is_that_of_its_row_by_hand(named, text):
    assert filled(f"it is {{{{{named}}}}}, so", {"cpu": ROWS}) == f"it is {text}, so"


@pytest.mark.parametrize(
    "named", ["gpu maze_x/64", "cpu maze_z", "cpu maze_*", "cpu ppo_z reference", "cpu ppo_z speed"]
)
def test_a_name_without_one_number_is_an_error(named):
    with pytest.raises(ConfigError, match=re.escape(named)):
        filled(f"{{{{{named}}}}}", {"cpu": ROWS})


def test_rows_are_printed_by_file_and_prefix(capsys):
    document.main(["promotion.json", "promotion/sprt/+0", "promotion/fixed/+0"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["promotion/sprt/+0_elo", "promotion/fixed/+0_elo"]


def test_ratings_of_a_figure_are_those_of_the_rows():
    (panel,) = figures.rating_panels(document.read_rows(document.FOLDER / "alphazero_connect_four.json"))
    assert panel.horizontal_lines["heuristic"] == 1000.0
    assert [line.name for line in panel.lines] == ["seed 0", "seed 1", "seed 2"]
    first = panel.lines[0]
    assert (first.x[1], round(first.y[1]), first.low[1], first.high[1]) == (2_514_944, 1330, 1265, 1396)
    (stages,) = figures.stage_panels([ROWS[-1]._replace(name="loop/connect_four/s0/rating")])
    assert stages.lines[0][:3] == ("seed 0", [0.0, 1.0], [230.0, 795.0])
    with pytest.raises(ValueError, match="model steps"):
        figures._found("model steps", ROWS[-1])
