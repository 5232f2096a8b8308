"""Recall does not come from names: what looks and what thinks knows no name of the zoo's."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hangbisect.base.pipeline import PIPELINES, find_pipeline
from hangbisect.rank.injections import KINDS
from hangbisect.zoo import case_files

PARTS = ("diagnosis", "evidence", "monitor")


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield where, and every text in the code below `folder`, documentation left out."""
    for file in folder.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        documented = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        documentation = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in documentation:
                continue
            if isinstance(node.value, str):
                yield f"{file.name}:{node.lineno}", node.value


@cache
def own_names() -> tuple[str, ...]:
    """Return what only the zoo's cases are called, and the injections' functions."""
    return tuple(sorted(set(_own_names())))


def _own_names() -> Iterator[str]:
    for kept in case_files.load_all_cases():
        yield kept.file.stem
        yield kept.case.title
        words = kept.file.stem.partition("_")[2]
        if "_" in words:
            yield words
        for node in ast.walk(ast.parse(kept.file.read_text("utf-8"))):
            # One word alone may be anybody's.
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and _is_own(node.name):
                yield node.name
    names = (function.__name__ for function in KINDS.values())
    yield from (name for name in names if not hasattr(os, name))  # os._exit is anybody's
    yield from ("zoo", "zoo_cases", "injections.py")


def _is_own(name: str) -> bool:
    hooks = re.match(r"on_|_*setup|train_|val_|prepare_data|training_step|configure_|__", name)
    steps = {step.checkpoint.name for name in PIPELINES for step in find_pipeline(name).steps}
    several = "_" in name.strip("_") or re.search(r"[a-z][A-Z]", name)
    return bool(several) and not hooks and name not in steps


@pytest.mark.parametrize("part", PARTS)
def test_no_matcher_knows_a_name_of_the_zoo(part: str, package: Path) -> None:
    any_of_them = re.compile(rf"(?<![\w])(?:{'|'.join(map(re.escape, own_names()))})(?![\w])")
    found = [(where, text) for where, text in texts(package / part) if any_of_them.search(text)]
    # diagnosis/process/frames.py knows where our own injections are, to call them the user's code.
    assert [f for f in found if f[1] != "rank/injections.py"] == []


@pytest.mark.parametrize("part", PARTS)
def test_no_matcher_imports_the_zoo(part: str, package: Path) -> None:
    for file in (package / part).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert "zoo" not in (node.module or "")
