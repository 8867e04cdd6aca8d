"""Takes the screenshots of docs/images: a page in headless Chromium, as a PNG of 256 colours.

    python docs/tools/screenshot.py URL_OR_FILE OUT.png [--size 1400x900] [--click SELECTOR] [--fill SELECTOR TEXT]

Needs the `dev` extra, and Chromium on the path. The page of a picture names the command that made it.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

TIMEOUT = 300_000  # milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", help="a URL or a file")
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="1400x900", help="CSS pixels")
    parser.add_argument(
        "--click", action="append", default=[], metavar="SELECTOR", help="clicked in order, after waiting for it"
    )
    parser.add_argument("--fill", nargs=2, metavar=("SELECTOR", "TEXT"), help="filled in after the clicks")
    parser.add_argument("--settle", type=float, default=2, metavar="SECONDS", help="wait before the screenshot")
    given = parser.parse_args()
    width, height = map(int, given.size.split("x"))
    url = given.page if "://" in given.page else Path(given.page).resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(TIMEOUT)
        page.goto(url)
        for selector in given.click:
            page.click(selector)
        if given.fill:
            page.fill(*given.fill)
        page.wait_for_timeout(1_000 * given.settle)
        picture = page.screenshot()
        browser.close()
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(given.out, optimize=True)
    print(f"{given.out} {given.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
