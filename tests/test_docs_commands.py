"""What docs/ says that commands do to processes, and that is tested; what CONTRIBUTING.md lists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hangbisect import commands
from hangbisect.rank.watched.known_calls import KNOWN_CALLS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "what-commands-do.md"
# They print what is known of toggles and causes, or are another command's inside.
WITHOUT_PROCESSES = {"toggles", "causes"} | commands.INTERNAL
# In the wheel they lie in the package; in the checkout in folders of their own (pyproject.toml).
FROM_ELSEWHERE = {"zoo_cases"}
# Printed by `hangbisect` alone, which is `attach` without its looks.
LISTS = {"jobs"}


def rows(part: str) -> dict[str, str]:
    """Return the rows of a table by their first cell."""
    found = re.findall(r"^\| ([^|]+?) \| (.+) \|$", part, re.MULTILINE)
    return {first.strip("`"): rest for first, rest in found if first not in ("command", "line")}


def parts() -> tuple[dict[str, str], dict[str, str]]:
    """Return what commands do, and what tests it."""
    head, _, tests = PAGE.read_text(encoding="utf-8").partition("## The tests")
    return rows(head), rows(tests)


def test_every_command_that_may_touch_a_process_has_its_line() -> None:
    does, _ = parts()
    named = {name.partition(" ")[0] for name in does}
    assert named == set(commands.names()) - WITHOUT_PROCESSES - LISTS


def test_every_line_has_a_test_that_is_there() -> None:
    does, tested = parts()
    assert [line for line in does if line not in tested] == []
    for line, names in tested.items():
        found = re.findall(r"`(tests/\S+\.py)::(\w+)`", names)
        assert found, line
        for file, name in found:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert name in functions, f"{file}::{name}"


def test_every_known_step_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "steps.md").read_text(encoding="utf-8")
    steps = [row.step for row in KNOWN_CALLS if not row.lasts]
    assert [step for step in steps if f"| `{step}` |" not in page] == []


@pytest.mark.parametrize(
    "command", ["run", "attach", "doctor", "merge", "report", "show", "isolate", "nodes"]
)
def test_the_exit_status_of_each_command_is_in_words(command: str) -> None:
    page = (ROOT / "docs" / "reference" / "exit-status.md").read_text(encoding="utf-8")
    (words,) = re.findall(rf"^\*\*`hangbisect {command}`\*\*(.+?)\n\n", page + "\n", re.M | re.S)
    assert re.search(r"\b0 |its own", words)


def test_contributing_names_every_folder_of_the_package_and_programs_that_are_there(
    package: Path,
) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {file.parent.name for file in package.glob("*/*.py")} - FROM_ELSEWHERE
    named = set(re.findall(r"`(?:bisect/)?(\w+)/`", text))
    assert folders - named == set()
    programs = re.findall(r"benchmarks/(\w+)\.py", text)
    assert [name for name in programs if not (ROOT / "benchmarks" / f"{name}.py").exists()] == []
