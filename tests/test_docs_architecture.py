"""The files and functions that docs/architecture.md and CONTRIBUTING.md name are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_ON_THE_PATH = 25
FILE = r"`([\w./-]+\.py)`"
NAME = r"`([A-Za-z_][\w.]*)`"
# What is said to be defined in a file: behind it, or beside it in a table.
BEHIND = re.compile(FILE + r"(?:,\s| \| |\s\()((?:`[A-Za-z_][\w.]*`(?:,\s)?)+)")
BEFORE = re.compile(NAME + r" \| " + FILE)
# Libraries' own, in what was measured.
OF_OTHERS = {"torch/_dynamo/eval_frame.py"}


def find_file(path: str) -> Path | None:
    """Return the file that a page calls `path`: from the root, or below the package."""
    found = (base / path for base in (ROOT, ROOT / "bisect"))
    return next((file for file in found if file.is_file()), None)


def is_there(path: str) -> bool:
    """Return whether a file is there; FAMILY, NAME and SOURCE stand for any text."""
    shape = re.sub("FAMILY|NAME|SOURCE", "*", path)
    return any(True for base in (ROOT, ROOT / "bisect") for _ in base.glob(shape))


@cache
def defined_names(file: Path) -> frozenset[str]:
    """Return what a file defines: functions, classes, methods as Class.method, variables."""
    return frozenset(_defined(ast.parse(file.read_text(encoding="utf-8")).body, ""))


def _defined(body: list[ast.stmt], above: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield above + node.name
            if isinstance(node, ast.ClassDef):
                yield from _defined(node.body, f"{above}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (above + one.id for one in targets if isinstance(one, ast.Name))


def table_rows(heading: str, page: str) -> list[list[str]]:
    """Return the cells of the rows of the table below a heading, without the first two rows."""
    part = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.parametrize("page", [PAGE, CONTRIBUTING], ids=["architecture", "CONTRIBUTING"])
def test_every_file_that_is_named_is_there(page: str) -> None:
    named = set(re.findall(FILE, page)) - OF_OTHERS
    assert len(named) > 30
    assert [path for path in sorted(named) if not is_there(path.replace("...", "*"))] == []


def test_every_function_is_defined_in_the_file_that_it_is_said_to_be_in() -> None:
    said = {(file, name) for name, file in BEFORE.findall(PAGE)}
    said |= {
        (file, name)
        for file, names in BEHIND.findall(PAGE)
        for name in re.findall(NAME, names)
        if not name.endswith((".py", ".md"))
    }
    wrong = [
        f"{path}: {name}"
        for path, name in sorted(said)
        if (file := find_file(path)) is None or name not in defined_names(file)
    ]
    assert len(said) > MOST_ON_THE_PATH
    assert wrong == []


def test_the_path_of_a_hang_has_few_files_and_each_step_its_function() -> None:
    rows = table_rows("The path of one hang", PAGE)
    assert [int(number) for number, *_ in rows] == [*range(1, len(rows) + 1)]
    assert len({file for _, file, *_ in rows}) <= MOST_ON_THE_PATH
    for _, file, function, does in rows:
        place = find_file(file.strip("`"))
        assert place is not None, file
        assert function.strip("`") in defined_names(place), (file, function)
        assert does.endswith("."), does


def test_an_extension_has_as_many_files_as_its_number_says() -> None:
    rows = table_rows("How many files an extension touches", CONTRIBUTING)
    assert len(rows) >= 7
    for extension, number, files, _ in rows:
        named = re.findall(r"`([^`]+)`", files)
        assert int(number) == len(named), extension
        assert [path for path in named if not is_there(path)] == [], extension


def test_what_contributing_says_to_add_to_is_defined() -> None:
    everywhere = {
        part
        for folder in ("bisect", "docs", "tests")
        for file in (ROOT / folder).rglob("*.py")
        for name in defined_names(file)
        for part in (name, name.rpartition(".")[2])
    }
    # Of users and libraries, or a part of a name.
    not_ours = {"doctor", "wandb.init", "_on_KIND", "missing", "firm", "hard", "attach", "NAME"}
    named = {
        word
        for row in table_rows("Where to add ...", CONTRIBUTING)
        for word in re.findall(r"`([A-Za-z_]\w*)`", " ".join(row))
    }
    assert named - everywhere - not_ours == set()


def test_contributing_lists_the_layers_in_the_order_that_is_tested() -> None:
    tree = ast.parse((ROOT / "tests" / "test_imports_point_one_way.py").read_text(encoding="utf-8"))
    (layers,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    )
    tested = [one.value for one in ast.walk(layers) if isinstance(one, ast.Constant)]
    part = CONTRIBUTING.partition("Layers, bottom to top.")[2]
    assert part.split("```")[1].split() == tested
