"""The report of real runs as a reader gets it: opened from its file in headless Chromium.

The unit tests read the page's text; here a browser decides what is fetched, decoded, visible, printed and too wide.
A machine without Chromium skips this; where STOIX_LIKE_REQUIRE_BROWSER is set, as in CI, its absence is a failure.
"""

import contextlib
import io
import os
import re
import shutil
from typing import NamedTuple

import pytest
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from support.marks import full
from support.scripted_runs import BASE, MAZE, SPO_BASE, Scripts, flags

EXECUTABLES = ("chromium", "chromium-browser", "google-chrome")
#: Beside what Playwright sets itself, which keeps Chromium from calling home: a root user and no GPU.
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync")
SIZE = {"num_updates": 6, "save_interval": 0}
DESKTOP, PHONE, SMALL_PHONE, PAPER = 1280, 390, 320, 680  # CSS pixels; A4 within its margins
CURVES = ["mean return", "solve rate", "episode length mean", "entropy", "explained variance"]
PATIENCE = 120_000  # milliseconds for a start or a click: other tests may keep the cores busy
NETWORK_CLOSED = "http://127.0.0.1:9/x.png"  # nobody listens at port 9

BROKEN_IMAGES = """() => Promise.all([...document.images].map(async (image) => {
  const shown = await image.decode().then(() => true, () => false);
  const box = image.getBoundingClientRect();
  return shown && image.naturalWidth > 1 && box.width > 1 && box.height > 1 ? "" : "broken image: " + image.alt;
})).then((found) => found.filter(Boolean))"""
WIDTHS = "[document.documentElement.clientWidth, document.documentElement.scrollWidth]"
SMALL_TEXT = """() => [...document.body.querySelectorAll("*")].filter((one) => one.checkVisibility())
  .filter((one) => parseFloat(getComputedStyle(one).fontSize) < 12).map((one) => one.tagName)"""
CUT_OFF = """() => [...document.querySelectorAll(".scroll, pre")]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth).map((one) => one.textContent)"""


class Opened(NamedTuple):
    """A page, and everything the browser had to say against it so far."""

    page: Page
    complaints: list[str]


@pytest.fixture(scope="module")  # no longer: while Playwright runs, no other test can start an event loop of its own
def browser():
    executable = next(filter(None, map(shutil.which, EXECUTABLES)), None)
    if executable is None:
        missing = "no Chromium on this machine: apt-get install chromium"
        assert not os.environ.get("STOIX_LIKE_REQUIRE_BROWSER"), missing
        pytest.skip(missing)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=[*ARGUMENTS], timeout=PATIENCE)
        yield started
        started.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, compile_cache):
    """A folder with a run of PPO and one of SPO, its episode drawn, and the reports of both and of SPO's alone."""
    folder = tmp_path_factory.mktemp("reported")
    scripts = Scripts(folder, compile_cache)
    scripts.run("train_ppo", *flags(**BASE | MAZE | SIZE, run_name="ppo"))
    scripts.run("train_spo", *flags(**SPO_BASE | MAZE | SIZE, run_name="spo"))
    scripts.run("animate", folder / "spo")
    scripts.run("report", folder / "spo", "--out", "one.html")
    scripts.run("report", folder / "ppo", folder / "spo", "--out", "both.html")
    return folder


@contextlib.contextmanager
def opened(browser, path, width=DESKTOP, **options):
    """The file in a new window of that width, fully loaded."""
    with contextlib.closing(browser.new_context(viewport={"width": width, "height": 800}, **options)) as context:
        context.set_default_timeout(PATIENCE)
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda request: complaints.extend(outside(request.url, path)))
        page.goto(path.as_uri(), wait_until="load")
        yield Opened(page, complaints)


def outside(url, path):
    """The address, if it is neither the file nor a part of it."""
    return [] if url == path.as_uri() or url.startswith("data:") else [f"request: {url}"]


def faults(view):
    """What is wrong with a page at whatever width."""
    client, content = view.page.evaluate(WIDTHS)
    too_wide = [f"wider than the screen: {content} of {client}"] if content > client else []
    return [*view.page.evaluate(BROKEN_IMAGES), *too_wide, *view.complaints]


def shown(view, role, name):
    """That element, which must be there once and be visible."""
    found = view.page.get_by_role(role, name=name, exact=True)
    assert found.count() == 1, name
    assert found.is_visible(), name
    return found


@pytest.mark.parametrize("scheme", ["light", full("dark")])
@pytest.mark.parametrize("width", [DESKTOP, full(PHONE), SMALL_PHONE])
@pytest.mark.parametrize("name", [full("one.html"), "both.html"])
def test_a_browser_has_nothing_to_say_against_it(browser, runs, name, width, scheme):
    with opened(browser, runs / name, width, color_scheme=scheme, is_mobile=width < DESKTOP) as view:
        assert faults(view) == []
        assert view.page.evaluate(WIDTHS)[0] == width  # a phone would pretend to be wider without the viewport
        assert view.page.evaluate(SMALL_TEXT) == []


def test_curves_and_the_episode_are_seen(browser, runs):
    """What the page says of a run, and of several: tests/runtime/reports."""
    with opened(browser, runs / "one.html") as view:
        assert view.page.title() == "SPO on Maze-v0: spo"
        for name in ("SPO on Maze-v0", "Scores", "Curves", "An episode", "Configuration and versions"):
            shown(view, "heading", name)
        assert view.page.evaluate(CUT_OFF) == []
        captions = view.page.locator("figcaption").all_inner_texts()
        assert captions[: len(CURVES)] == CURVES
        for name in captions:
            picture = shown(view, "img", f"{name} over environment steps")
            assert picture.evaluate("one => one.naturalWidth > 600 && one.naturalHeight > 400")
        episode = shown(view, "img", "an episode")
        with Image.open(runs / "spo" / "episode.gif") as gif:
            assert episode.evaluate("one => [one.naturalWidth, one.naturalHeight]") == [*gif.size]
    with opened(browser, runs / "both.html") as view:
        shown(view, "img", "score over steps")
        shown(view, "img", "probability of improvement")
        assert view.page.evaluate(CUT_OFF) == []


def test_files_are_unfolded_by_a_click(browser, runs):
    with opened(browser, runs / "one.html") as view:
        config = view.page.locator("pre")
        assert not config.is_visible()
        view.page.get_by_text("config.yaml", exact=True).click()
        assert config.is_visible()
        assert re.search(r"^  num_envs: 8 ", config.inner_text(), re.MULTILINE)
        view.page.get_by_text("history", exact=True).click()
        assert shown(view, "cell", "start")
        assert faults(view) == []


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_pages_and_curves_are_as_light_or_dark_as_the_reader_wants_them(browser, runs, scheme, is_dark):
    """Pictures too: their paper is as the page's."""
    with opened(browser, runs / "one.html", color_scheme=scheme) as view:
        curve = view.page.get_by_role("img", name="entropy over environment steps")
        for picture in (view.page.screenshot(), curve.screenshot()):
            with Image.open(io.BytesIO(picture)) as image:
                corner = image.convert("L").getpixel((4, 12))
                assert (corner < 40) if is_dark else (corner > 250)


def test_on_paper_everything_is_unfolded_and_fits(browser, runs):
    with opened(browser, runs / "both.html", PAPER, color_scheme="dark") as view:
        view.page.emulate_media(media="print")
        assert faults(view) == []
        assert view.page.evaluate(CUT_OFF) == []
        boxes = view.page.locator("pre").evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")
        assert len(boxes) == 2
        assert min(boxes) > 500
        for name in ("jaxlib", "start"):
            cells = view.page.get_by_role("cell", name=name, exact=True).all()
            assert [cell.is_visible() for cell in cells] == [True, True]
        pages = len(re.findall(rb"/Type\s*/Page\b", view.page.pdf(format="A4", prefer_css_page_size=True)))
        assert 4 <= pages <= 16


@pytest.mark.parametrize(
    ("planted", "seen"),
    [
        full("<script>console.warn('planted')</script>", "console warning: planted"),
        full("<script>undefined.planted</script>", "error: Cannot read properties of undefined"),
        (f"<img alt=far src={NETWORK_CLOSED}>", f"request: {NETWORK_CLOSED}"),
        ("<img alt=torn src='data:image/png;base64,iVBORw0KGgo='>", "broken image: torn"),
        ("<p style='width: 2000px'>planted</p>", "wider than the screen: "),
    ],
)
def test_a_planted_fault_is_seen(browser, runs, tmp_path, planted, seen):
    """Of a page without the policy that would refuse most of them, at which the browser has nothing to say."""
    text = (runs / "one.html").read_text()
    unguarded = re.sub(r"<meta http-equiv=[^>]*>", "", text)
    assert unguarded != text
    path = tmp_path / "page.html"
    for more, start in (("", None), (planted, seen)):
        path.write_text(unguarded.replace("</body>", f"{more}</body>"))
        with opened(browser, path) as view:
            found = faults(view)
            assert any(fault.startswith(start) for fault in found) if start else found == [], found


@pytest.mark.parametrize("planted", ["<script>document.title = 'run'</script>", f"<img src={NETWORK_CLOSED}>"])
def test_the_policy_of_the_page_refuses_scripts_and_addresses(browser, runs, tmp_path, planted):
    """Even markup that came into the page somehow runs nothing and fetches nothing."""
    path = tmp_path / "planted.html"
    path.write_text((runs / "one.html").read_text().replace("</body>", f"{planted}</body>"))
    with opened(browser, path) as view:
        assert "Content Security Policy" in " ".join(faults(view))
        assert view.page.title() == "SPO on Maze-v0: spo"
