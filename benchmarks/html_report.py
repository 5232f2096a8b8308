"""How large report.html of 1,024 ranks with 12 different stacks is, and when Chromium paints it.

The job is made up (made_up_job.py); the browser is a real one, without a screen, and starts the
page anew each time. Required: at most 2 MiB, and first paint within 1 s.

    python benchmarks/html_report.py [--ranks 1024] [--stacks 12] [--rounds 5]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import made_up_job
from hangbisect.base.words import format_bytes
from hangbisect.report.html.page import html_page
from hangbisect.report.redaction import Redactor
from hangbisect.report.run_reader.run import read_run
from playwright.sync_api import sync_playwright

QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
PAINTS = "performance.getEntriesByType('paint').map((one) => [one.name, one.startTime])"


def painted(page: Path, rounds: int) -> dict[str, list[float]]:
    """Return after how many milliseconds each kind of paint came, as the browser measured it."""
    found: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(
            executable_path=program, args=[*QUIET], timeout=120_000
        )
        for _ in range(rounds):
            window = browser.new_page(viewport={"width": 1200, "height": 900})
            window.set_default_timeout(120_000)
            window.goto(page.as_uri())
            # Painted after `load` at times.
            window.wait_for_function(f"{PAINTS}.length === 2")
            for name, milliseconds in window.evaluate(PAINTS):
                found.setdefault(name, []).append(milliseconds)
            window.close()
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--stacks", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made_up_job.write(folder / "run", given.ranks, given.stacks)
        run = read_run(folder / "run")
        began, cpu = time.perf_counter(), time.process_time()
        text = html_page(run, Redactor())
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        page = folder / "report.html"
        page.write_text(text, encoding="utf-8")
        size = page.stat().st_size
        print(f"{given.ranks} ranks, {given.stacks} stacks: {format_bytes(size)} (limit 2 MiB)")
        print(f"made in {took:.2f} s, of which {cpu:.2f} s on a CPU")
        for kind, times in painted(page, given.rounds).items():
            print(f"{kind}: {median(times):.0f} ms, at most {max(times):.0f} ms (limit 1000 ms)")


if __name__ == "__main__":
    main()
