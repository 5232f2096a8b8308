"""The page on what changed since yesterday: its two starts are made here, and compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..conftest import DEADLINE
from ..transcripts import block, is_printed

PAGE = "how-to/it-worked-yesterday.md"
START = ("--until", "logs_directory", "--run-dir")
BAD = ("--inject", "sleep@logs_directory", "--stall", "2")


def test_the_page_shows_what_is_printed(tmp_path: Path, package: Path) -> None:
    def ran(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(package), *words],
            cwd=tmp_path,
            # A variable that this machine has for its jobs is one more that is the same.
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )

    good = ran(*START, "runs/monday")
    assert good.returncode == 0, good.stderr
    bad = ran(*START, "runs/tuesday", *BAD, HTTPS_PROXY="http://proxy.corp:3128")
    assert bad.returncode == 3, bad.stderr
    found = ran("compare", "runs/monday", "runs/tuesday")
    assert found.returncode == 1, found.stderr
    assert is_printed(block(PAGE, "A         ok"), found.stdout)
    same = ran("compare", "runs/monday", "runs/monday")
    assert (same.returncode, "nothing differs" in same.stdout) == (0, True)
