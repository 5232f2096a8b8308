"""report.html in a real browser: with the keyboard, without scripts, on a phone, on paper."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made_up_job
import pytest
from axe_playwright_python.sync_playwright import Axe
from hangbisect.base.checkpoints import STARTUP_BY_NAME
from hangbisect.report.html.page import html_page
from hangbisect.report.redaction import Redactor
from hangbisect.report.run_reader.run import read_run
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
SLOWEST = 60_000  # milliseconds, on a busy machine
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here")

Opens = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=PROGRAM, args=[*QUIET], headless=True, timeout=SLOWEST
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of jobs of 2 and of 64 ranks, and of one whose names are an attack."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, ranks in (("two", 2), ("many", 64)):
        made_up_job.write(folder / name, ranks, stacks=12)
        found[name] = folder / f"{name}.html"
        found[name].write_text(html_page(read_run(folder / name), Redactor()), encoding="utf-8")
    attack = '<img src=x onerror=alert(1)>\\"><script>alert(2)</script>'
    hostile = folder / "hostile"
    shutil.copytree(folder / "two", hostile)
    for file in hostile.iterdir():
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"n000|main|train\.py", attack, text), encoding="utf-8")
    found["hostile"] = folder / "hostile.html"
    found["hostile"].write_text(html_page(read_run(hostile), Redactor()), encoding="utf-8")
    return found


@pytest.fixture
def heard() -> list[str]:
    """What pages said, asked for, or wanted from elsewhere."""
    return []


@pytest.fixture
def opens(browser: Browser, files: dict[str, Path], heard: list[str]) -> Iterator[Opens]:
    """Opens one of the pages in a window of its own. None may leave anything in `heard`."""
    contexts = []

    def asked(dialog: Dialog) -> None:
        heard.append(dialog.message)
        dialog.dismiss()

    def open_page(name: str, width: int = 1200, **options: Any) -> Page:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(SLOWEST)
        page.on("console", lambda said: heard.append(f"said {said.text}"))
        page.on("pageerror", lambda error: heard.append(f"failed: {error}"))
        page.on("dialog", asked)
        address = files[name].as_uri()
        page.on("request", lambda made: heard.extend({made.url} - {address}))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []


def focused(page: Page) -> str:
    """Return what has the focus, in words."""
    return str(page.evaluate("document.activeElement.innerText.trim().split('\\n')[0]"))


def test_what_attacks_is_shown_as_text(opens: Opens) -> None:
    page = opens("hostile")
    page.evaluate(UNFOLD)
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert "<img src=x onerror=alert(1)>" in page.locator("#verdict").inner_text()
    assert "<script>alert(2)</script>" in page.locator("#stacks").inner_text()
    assert "<script>alert(2)</script>" in page.locator("#timeline").inner_text()


def test_a_script_or_a_picture_that_got_in_would_not_be_run_or_loaded(
    opens: Opens, heard: list[str]
) -> None:
    page = opens("two")
    stopped = page.evaluate(
        """() => new Promise((done) => {
          const stopped = [];
          document.addEventListener("securitypolicyviolation", (event) => {
            stopped.push(event.effectiveDirective);
            if (stopped.length === 2) done(stopped.sort());
          });
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          const picture = document.createElement("img");
          picture.src = "https://example.org/x.png";
          document.body.append(script, picture);
        })"""
    )
    assert stopped == ["img-src", "script-src-elem"]
    assert page.evaluate("window.ran") is None
    heard.clear()  # the browser says that it refused


def test_the_keyboard_reaches_and_reads_every_row(opens: Opens) -> None:
    page = opens("many")
    page.keyboard.press("Tab")
    assert focused(page) == "To the verdict"
    page.keyboard.press("Enter")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.row > summary')"):
            break
    assert focused(page).startswith("rank 21")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    pointed = page.locator("#pointed")
    page.keyboard.press("ArrowLeft")
    assert pointed.inner_text().startswith("hangs: wandb.init")
    page.keyboard.press("ArrowLeft")
    assert "import" in pointed.inner_text() or "9 WandbLogger" in pointed.inner_text()
    page.keyboard.press("ArrowDown")
    assert focused(page).startswith("ranks 0-20,22-63")
    page.keyboard.press("Enter")
    assert page.get_by_role("table", name="Steps of ranks 0-20,22-63").is_visible()


def test_a_rank_is_found_in_its_group(opens: Opens) -> None:
    page = opens("many")
    page.get_by_label("Find a rank or host").fill("rank 50")
    found = page.locator(".lines .found")
    assert (found.text_content() or "").strip().startswith("rank 50")
    assert found.is_visible()
    assert page.locator("#found").inner_text() == "1 found"


def test_each_rank_of_a_group_is_read_by_keyboard_as_well(opens: Opens) -> None:
    page = opens("many")
    page.locator(".row > summary").nth(1).press("Enter")
    page.locator(".single > summary").press("Enter")
    page.keyboard.press("Tab")
    assert focused(page).startswith("rank 0")
    page.keyboard.press("ArrowDown")
    assert focused(page).startswith("rank 1")
    page.keyboard.press("ArrowLeft")
    number = STARTUP_BY_NAME["wandb_logger"].number
    pointed = page.locator("#pointed").inner_text()
    assert pointed.startswith(f"waits: barrier after checkpoint {number}")


def test_a_block_without_words_of_its_own_is_told_by_its_place(opens: Opens) -> None:
    page = opens("many")
    page.evaluate("document.querySelectorAll('.lines title').forEach((one) => one.remove())")
    page.evaluate(UNFOLD)
    page.locator(".lines li").first.focus()
    page.keyboard.press("ArrowLeft")
    told = page.locator("#pointed").inner_text()
    assert re.fullmatch(r"waits for others: 6\d\.\d s, from [23]\d\.\d s", told)


def test_without_scripts_nothing_is_missing(opens: Opens) -> None:
    page = opens("many", java_script_enabled=False)
    titles = [title for title in page.locator("h2").all_inner_texts() if title]
    assert len(titles) == 7
    row = page.locator(".row").nth(1)
    row.locator("> summary").click()
    assert row.get_by_role("table").is_visible()
    assert not page.locator("#find").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_checker_of_accessibility_finds_nothing_wrong(opens: Opens, scheme: str) -> None:
    page = opens("two", color_scheme=scheme)
    page.evaluate(UNFOLD)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert len(found.response["passes"]) > 20
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.parametrize("name", ["two", "many", "hostile"])
def test_on_a_phone_nothing_sticks_out(opens: Opens, name: str) -> None:
    page = opens(name, width=380)
    page.evaluate(UNFOLD)
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_on_paper_folded_stacks_are_printed_and_the_dark_stays_off(opens: Opens) -> None:
    page = opens("many", color_scheme="dark")
    frame = page.locator("#stacks details:not([open]) .frames li").first
    assert frame.count() == 1
    assert not frame.is_visible()
    page.emulate_media(media="print")
    assert frame.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_who_wants_less_motion_gets_none(opens: Opens) -> None:
    page = opens("two", reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
