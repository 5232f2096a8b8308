"""Renamed copies of cases: other names, the same doings."""

from __future__ import annotations

import ast
import re

from hangbisect.zoo import case_files
from hangbisect.zoo.case_files import CaseFile

from ..examples import for_each

CASES = case_files.load_all_cases()

SOURCE = '''
"""What happened."""
import os
import threading as strands

HELPER = """
def wait_here(seconds):
    return seconds
def at_end():
    wait_here(1)
"""
THEIRS_MESSAGE = "CUDA out of memory"
WAIT = 3


class Silence(dict):
    """Waits."""

    limit = 5

    def on_fit_start(self, trainer, pl_module):
        waited = 0
        print(f"waiting {waited} for silence", WAIT)
        raise RuntimeError("I gave up", THEIRS_MESSAGE)


def make(given, *, loudly=False):
    def nested(given):
        global WAIT
        try:
            return [given for given in os.environ if strands]
        except OSError as trouble:
            raise trouble
    return nested(given), Silence(limit=WAIT)
'''


def test_own_names_are_changed_and_others_kept() -> None:
    text, module = case_files.rename_case(SOURCE, "T1_silence")
    assert module != "T1_silence"
    for own in ("wait_here", "Silence", "make", "nested", "given", "WAIT", "waited", "trouble"):
        assert not re.search(rf"\b{own}\b", text), own
    for kept in ("on_fit_start", "trainer", "pl_module", "strands", "limit", "loudly", "at_end"):
        assert re.search(rf"\b{kept}\b", text), kept


def test_what_it_says_is_changed_and_what_a_library_would_say_is_not() -> None:
    text, _ = case_files.rename_case(SOURCE, "T1_silence")
    assert "gave" not in text
    assert "silence" not in text
    assert "What happened" not in text
    assert "'CUDA out of memory'" in text


def test_the_copy_does_the_same() -> None:
    text, _ = case_files.rename_case("def double(number):\n    return number + number\n", "T1")
    names: dict[str, object] = {}
    exec(text, names)
    (made,) = [value for name, value in names.items() if not name.startswith("__")]
    assert callable(made)
    assert made(4) == 8


def test_the_same_case_always_gets_the_same_names() -> None:
    assert case_files.rename_case(SOURCE, "T1") == case_files.rename_case(SOURCE, "T1")
    assert case_files.rename_case(SOURCE, "T1") != case_files.rename_case(SOURCE, "T2")


@for_each(CASES, lambda kept: kept.case.id)
def test_every_case_is_a_case_under_other_names(kept: CaseFile) -> None:
    source, module = case_files.read_renamed(kept.file)
    case = case_files.load_renamed(source, module, kept.case)
    assert case.truth == kept.case.truth
    assert set(case.uses) == set(kept.case.uses)
    functions = {n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)}
    assert set(case.uses.values()) <= functions
    assert not set(case.uses.values()) & set(kept.case.uses.values())
