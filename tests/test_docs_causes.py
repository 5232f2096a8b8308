"""The pages of docs/causes/ say what the declarations say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hangbisect.diagnosis.causes.catalogue import CAUSES

DOCS = Path(__file__).resolve().parents[1] / "docs"
AGAIN = "run: python docs/make_causes.py"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_causes", DOCS / "make_causes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_cause_has_a_page_and_every_page_a_cause(maker: Any) -> None:
    written = {file.name for file in maker.FOLDER.glob("*.md")}
    assert written == {"README.md", *(f"{known.id}.md" for known in CAUSES)}, AGAIN


def test_the_pages_say_what_the_declarations_say(maker: Any) -> None:
    for name, text in maker.pages().items():
        file = maker.FOLDER / name
        assert file.exists(), AGAIN
        assert file.read_text(encoding="utf-8") == text, f"{name}: {AGAIN}"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("rm {lock}", "rm *lock*"),
        ("`{git} diff` waits", "`<git> diff` waits"),
        ("NCCL_* and <name>", r"NCCL_\* and \<name\>"),
    ],
)
def test_words_are_no_marks(maker: Any, words: str, page: str) -> None:
    assert maker.escaped(words) == page
