"""Some cases of the zoo, for real: `hangbisect zoo run` has them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .verdicts import REACHED

# One a kind, as light as there is: nobody at the other end, W&B, and one that must not be called a
# hang. A rank that left and ranks that wait for another's lock are below.
SAMPLE = ("H04", "I11", "I17")


def run(package: Path, tmp_path: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Return how the command ended, and the row of its one case."""
    rows = tmp_path / "rows.json"
    command = [sys.executable, str(package), "zoo", "run", *words, "--json", str(rows)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    (row,) = json.loads(rows.read_text())["cases"]
    return ended, row


def check(ended: subprocess.CompletedProcess[str], row: Any) -> None:
    said = ended.stdout + ended.stderr
    if row["skipped"]:
        pytest.skip(row["skipped"])
    assert row["located"], said
    assert row["component"] != "wrong", said
    assert row["cause"] != "wrong", said
    assert row["blamed"] == []
    assert row["left"] == [], said
    assert ended.returncode == 0, said


@pytest.mark.parametrize("case", SAMPLE)
def test_the_answer_is_right_and_its_run_folder_is_kept_if_asked_for(
    case: str, package: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    check(*run(package, tmp_path, case, "--keep", str(kept)))
    assert (kept / case / "verdict.json").is_file()
    assert REACHED["script"] in (kept / case / "output.txt").read_text()


def test_it_does_not_come_from_names_nor_from_which_rank_it_is(
    package: Path, tmp_path: Path
) -> None:
    check(*run(package, tmp_path, "H02", "--renamed", "--ranks", "3", "--culprit", "1"))


@pytest.mark.parametrize("way", ["run", "attach"])
def test_it_is_right_of_a_script_as_well(way: str, package: Path, tmp_path: Path) -> None:
    check(*run(package, tmp_path, "H02", "--under", way))
