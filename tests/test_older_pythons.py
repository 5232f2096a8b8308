"""What runs inside a watched job is readable by the Pythons that jobs have."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hangbisect.rank.watched.unreached_ranks import OLDEST

from .other_pythons import ALL, WATCHED, interpreter
from .test_imports_point_one_way import imported

IMPORTS_ALL = """
import importlib, importlib.util, sys
folder, *names = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    "hangbisect", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["hangbisect"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name in names:
    importlib.import_module("hangbisect." + name)
print(len(names))
"""


def rank_side(package: Path) -> set[str]:
    """Return the files of all that the rank side of a script's own may import, itself included."""
    found: set[str] = set()
    left = [*_files(package, "rank/watched"), "rank/patches.py"]
    while left:
        file = left.pop()
        if file not in found:
            found.add(file)
            tree = ast.parse((package / file).read_text(encoding="utf-8"))
            left += _imported_files(package, file, tree)
    return found


def _files(package: Path, folder: str) -> list[str]:
    return [path.relative_to(package).as_posix() for path in (package / folder).glob("*.py")]


def _imported_files(package: Path, file: str, tree: ast.Module) -> Iterator[str]:
    for _, name in imported(file, tree):
        if name.startswith("."):
            parts = name.strip(".").split(".")
            for length in range(len(parts) + 1):
                path = package.joinpath(*parts[:length])
                for one in (path.with_suffix(".py"), path / "__init__.py"):
                    if one.is_file():
                        yield one.relative_to(package).as_posix()


@pytest.mark.parametrize("version", ALL)
def test_any_python_reads_the_start_up(version: str, package: Path) -> None:
    python = interpreter(version) or pytest.skip(f"there is no Python {version} here")
    code = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')"
    command = [python, "-S", "-c", code, str(package / "start_up" / "sitecustomize.py")]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize("version", WATCHED)
def test_the_rank_side_is_imported_by_each_python_that_it_is_for(
    version: str, package: Path
) -> None:
    python = interpreter(version) or pytest.skip(f"there is no Python {version} here")
    modules = [
        file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for file in rank_side(package) - {"__init__.py"}
    ]
    command = [python, "-B", "-I", "-S", "-W", "error", "-c", IMPORTS_ALL, str(package), *modules]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ran.stderr, ran.stdout) == ("", f"{len(modules)}\n")


def test_what_the_linter_rewrites_stays_readable_by_the_oldest(
    checkout: Path, package: Path
) -> None:
    rules = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    targets = rules["tool"]["ruff"]["per-file-target-version"]
    named = [pattern.removeprefix("bisect/") for pattern in targets]
    expanded = [one for pattern in named for one in _expanded(pattern)]
    missing = [
        file
        for file in sorted(rank_side(package))
        if not any(
            file == one or (one.endswith("**") and file.startswith(one[:-2])) for one in expanded
        )
    ]
    assert missing == []
    assert {*targets.values()} == {"py{}{}".format(*OLDEST)}


def _expanded(pattern: str) -> list[str]:
    """Return what a pattern with {a,b} in it stands for."""
    before, brace, rest = pattern.partition("{")
    words, _, after = rest.partition("}")
    return [before + word + after for word in words.split(",")] if brace else [pattern]


def test_the_start_up_steps_aside_below_the_oldest(package: Path) -> None:
    text = (package / "start_up" / "sitecustomize.py").read_text(encoding="utf-8")
    assert f"sys.version_info < {OLDEST}" in text
