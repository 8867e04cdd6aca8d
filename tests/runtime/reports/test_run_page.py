"""The report as a browser gets it: well formed, whole, harmless whatever the files say, and complete."""

import base64
import html.parser
import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image
from support.hand_made import write_run
from support.paths import load_script

from stoix_like.commands.entry import exit_code
from stoix_like.runtime.reports import html as html_page
from stoix_like.runtime.reports import run_page

HOSTILE = "</pre></style><script src='https://evil.example/x.js'>alert(1)</script><img src=x onerror=\"alert('2')\">"
VOID = {"meta", "img"}
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "pre", "div", "figure", "img"}
TAGS |= {"details", "summary", "table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "figcaption"}


class Page(html.parser.HTMLParser):
    """What a page is made of; raises where an end tag does not fit."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], "elements that are never closed"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))

    def words(self):
        return " ".join(data for tag, data in self.text if tag != "style")


def _run(folder, name="run", **options):
    options = {
        "config": {"environment": {"num_envs": 8}},
        "metrics": ("evaluator/mean_return", "actor/entropy"),
    } | options
    path = write_run(folder / name, lambda seed, update: 0.1 * seed + (0.9 if update == 20 else 0.25), **options)
    (path / "versions.json").write_text(json.dumps({"jax": "0.10.2", "python": "3.11"}))
    return path


def _harmless(text):
    """The page, of which nothing is fetched and nothing is run."""
    page = Page(text)
    assert set(page.tags) <= TAGS
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("href", "srcset", "action", "style"), (tag, name)
        if name == "src":
            assert value.startswith("data:image/"), value
    policies = [value for tag, name, value in page.attributes if tag == "meta" and name == "content"]
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in policies
    assert not re.search(r"url\(|@import", "".join(data for tag, data in page.text if tag == "style"))
    return page


def test_elements_by_hand_and_a_check_that_can_fail():
    assert html_page.tag("p", "a < b & ", html_page.tag("b", '"c"')) == "<p>a &lt; b &amp; <b>&quot;c&quot;</b></p>"
    assert html_page.tag("img", src='x" onerror="y', class_="z") == '<img src="x&quot; onerror=&quot;y" class="z">'
    assert html_page.table(["h"], [["<i>"]]) == (
        '<div class="scroll"><table><thead><tr><th scope="col">h</th></tr></thead>'
        "<tbody><tr><td>&lt;i&gt;</td></tr></tbody></table></div>"
    )
    for bad in ("<p><b></p></b>", "<p>", '<img src="https://a/b.png">', '<p onclick="x()"></p>', "<script></script>"):
        with pytest.raises((AssertionError, IndexError)):
            _harmless(html_page.page("t", html_page.Markup(bad)))
    _harmless(html_page.page("t", "fine"))


def test_the_report_of_a_run_says_what_it_is(tmp_path):
    path = _run(tmp_path, seeds=(3, 4), device="cpu: 2 cores")
    page = _harmless(run_page.report([path]))
    words = page.words()
    facts = ("PPO on Maze-v0: run", "3, 4", "cpu: 2 cores", "4,000 of each seed", "0:00:04", "num_envs", "0.10.2")
    assert [fact for fact in facts if fact not in words] == []
    assert page.tags.count("img") == 2  # mean_return and entropy
    cells = [data for tag, data in page.text if tag == "td"]
    last, best = cells.index("last"), cells.index("best")
    assert cells[last - 1 : last + 3] == ["3", "last", "4,000", "0.55"]
    assert cells[best - 1 : best + 3] == ["3", "best", "2,000", "1.2"]


def test_pictures_are_in_the_page_but_for_a_large_animation(tmp_path):
    path = _run(tmp_path)
    frames = [Image.new("L", (8, 8), color=shade) for shade in (0, 200)]
    frames[0].save(path / "episode.gif", save_all=True, append_images=frames[1:])
    page = _harmless(run_page.report([path]))
    sources = [value for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
    kinds = []
    for source in sources:
        with Image.open(io.BytesIO(base64.b64decode(source.partition("base64,")[2]))) as image:
            kinds.append(image.format)
            assert image.format.lower() == source.removeprefix("data:image/").partition(";")[0]
    assert kinds == ["PNG", "PNG", "GIF"]
    assert all(value for tag, name, value in page.attributes if name == "alt")
    (path / "episode.gif").write_bytes(b"GIF89a" + bytes(4_000_000))
    text = run_page.report([path])
    assert "episode.gif has 4.0 MB and is not embedded: see the run folder" in Page(text).words()
    assert len(text) < 2_000_000


def test_whatever_files_say_is_text(tmp_path):
    """In names, in configuration, in versions, in the history: nothing of it becomes markup."""
    path = _run(tmp_path, "a<b>&'c", task=f"Maze{HOSTILE}", algorithm="<b>PPO", device=HOSTILE)
    (path / "config.yaml").write_text(json.dumps({"logging": {"otlp_endpoint": HOSTILE}}))
    (path / "versions.json").write_text(json.dumps({HOSTILE: [HOSTILE]}))
    with (path / "metrics.jsonl").open("a") as file:
        event = {"category": "MISC", "update": 1, "timesteps": 1, "elapsed_seconds": 1.0, "seed": None}
        file.write(json.dumps(event | {"misc/event": "changed", "misc/changed": HOSTILE}) + "\n")
    page = _harmless(run_page.report([path]))
    assert page.words().count("alert(1)") >= 5  # it is all there, as text
    assert "script" not in page.tags


@pytest.mark.parametrize("broken", ["not json", "[1, 2]", '{"a": '])
def test_damaged_versions_are_shown_as_they_are(tmp_path, broken):
    path = _run(tmp_path)
    (path / "versions.json").write_text(broken)
    assert broken in _harmless(run_page.report([path])).words()


def test_several_runs_are_compared_first_and_one_may_not_be_evaluated_yet(tmp_path):
    page = _harmless(run_page.report([_run(tmp_path, metrics=("actor/mean_return",))]))
    assert "not evaluated yet" in page.words()
    assert page.tags.count("img") == 1
    paths = [_run(tmp_path, "a"), _run(tmp_path, "b", algorithm="SPO", seeds=(0, 1))]
    page = _harmless(run_page.report(paths))
    headings = [data for tag, data in page.text if tag == "h2"]
    assert headings == ["Comparison", "a", "b"]
    assert "P(PPO > SPO)" in page.words()
    assert page.tags.count("img") == 3 + 2 + 2


def test_the_script_writes_into_the_run(inside, capfd):
    script = load_script("report")
    _run(inside / "runs", "a")
    _run(inside / "runs", "b", algorithm="SPO")
    assert exit_code(script.main, ["a"]) == 0
    assert exit_code(script.main, ["a", "b", "a"]) == 0
    assert exit_code(script.main, ["b", "--out", "x.html"]) == 0
    assert capfd.readouterr().out == "report runs/a/report.html\nreport report.html\nreport x.html\n"
    for name in ("runs/a/report.html", "report.html", "x.html"):
        _harmless(Path(name).read_text(encoding="utf-8"))
    assert exit_code(script.main, ["b", "--out", "nowhere/x.html"]) == 2
    assert exit_code(script.main, ["c"]) == 4
