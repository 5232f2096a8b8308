"""How hard the package is to enter: files, lines, importers, imports that point up, names.

    python benchmarks/shape.py [COMMIT ...]

A column for each commit and one for the working tree. Imports count wherever they stand, in
functions too, but not those for type checkers alone. `single importer`: files that one other file
imports. `upward`: imports of a part that LAYERS (tests/test_imports_point_one_way.py) has above
their own; None for a tree from before there were layers. `in three places`: names of functions and
classes that stand at the top of three files or more. Lines are of all Python files; `by part` has
the largest.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST_PARTS = 8


@dataclass
class Shape:
    """What is counted of one tree."""

    files: int = 0
    lines: int = 0
    median: int = 0
    longest: int = 0
    single_importer: int = 0
    upward: int | None = None
    names: dict[str, int] = field(default_factory=dict)  # in three places or more
    parts: Counter[str] = field(default_factory=Counter)


def measure_tree(package: Path, layers: tuple[str, ...]) -> Shape:
    """Return the shape of the package in a folder."""
    trees = {
        path.relative_to(package).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
    }
    lengths = sorted(len(text.splitlines()) for text in trees.values())
    found = Shape(len(trees), sum(lengths), lengths[len(lengths) // 2], lengths[-1])
    importers: dict[str, set[str]] = {module_of(file): set() for file in trees}
    names: Counter[str] = Counter()
    upward = 0
    for file, text in trees.items():
        tree = ast.parse(text)
        part = Path(file).with_suffix("").parts[0]
        found.parts[part] += len(text.splitlines())
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names.update({node.name for node in tree.body if isinstance(node, kinds)})
        for name in imports_of(file, tree):
            module = name if name in importers else name.rpartition(".")[0]
            if module in importers and module != module_of(file):
                importers[module].add(file)
            above = name.partition(".")[0]
            if part in layers and above in layers:
                upward += layers.index(above) > layers.index(part)
    found.single_importer = sum(len(by) == 1 for by in importers.values())
    found.upward = upward if "base" in found.parts else None
    found.names = {name: count for name, count in names.most_common() if count >= 3}
    return found


def module_of(file: str) -> str:
    """Return "rank.lines" for "rank/lines.py", "rank" for "rank/__init__.py"."""
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(file: str, tree: ast.AST) -> list[str]:
    """Return what a file imports of the package, dotted, from its root."""
    package = Path(file).parent.parts
    found = []
    ask = list(ast.iter_child_nodes(tree))
    while ask:
        node = ask.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        ask += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.level:
            above = package[: len(package) - node.level + 1]
            inside = [*above, *(node.module or "").split(".")]
            prefix = ".".join(filter(None, inside))
            found += [f"{prefix}.{alias.name}".strip(".") for alias in node.names]
    return found


def layers_of_tests() -> tuple[str, ...]:
    """Return the list of layers."""
    sys.path.insert(0, str(ROOT / "tests"))
    from test_imports_point_one_way import LAYERS

    return tuple(LAYERS)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    layers = layers_of_tests()
    shapes: dict[str, Shape] = {}
    for commit in parser.parse_args().commits:
        asked = ["git", "archive", commit, "bisect"]
        archive = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(folder, filter="data")
            shapes[commit[:12]] = measure_tree(Path(folder) / "bisect", layers)
    shapes["now"] = measure_tree(ROOT / "bisect", layers)
    rows = {
        "files": [shape.files for shape in shapes.values()],
        "lines": [shape.lines for shape in shapes.values()],
        "lines of a file, median": [shape.median for shape in shapes.values()],
        "lines of the longest": [shape.longest for shape in shapes.values()],
        "single importer": [shape.single_importer for shape in shapes.values()],
        "upward imports": [shape.upward for shape in shapes.values()],
        "names in three places": [len(shape.names) for shape in shapes.values()],
    }
    for part, _ in shapes["now"].parts.most_common(LARGEST_PARTS):
        rows[f"lines of {part}/"] = [shape.parts[part] for shape in shapes.values()]
    print(f"{'':26}" + "".join(f"{name:>14}" for name in shapes))
    for name, values in rows.items():
        print(f"{name:26}" + "".join(f"{value!s:>14}" for value in values))
    most = ", ".join(f"{name} {count}" for name, count in [*shapes["now"].names.items()][:12])
    print(f"\nnow in three places or more: {most or 'none'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
