"""`import bisect` in our checkout gives what the standard library gives, and nothing else."""

from __future__ import annotations

import _bisect
import importlib.metadata
import subprocess
import sys
from operator import neg
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

SIX_NAMES = ("bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right")


def ask(code: str, folder: Path) -> str:
    """Return what an interpreter in `folder` prints, which has only itself and that folder."""
    command = [sys.executable, "-S", "-c", code]
    asked = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout.strip()


def test_it_loads_nothing_but_the_c_module(checkout: Path) -> None:
    code = "import sys; old = {*sys.modules}; import bisect; print(*sorted({*sys.modules} - old))"
    assert ask(code, checkout) == "_bisect bisect"


def test_it_has_the_six_names_of_the_standard_library_and_no_other(checkout: Path) -> None:
    code = (
        "import bisect; print(bisect.__file__);"
        "print(*sorted(n for n in vars(bisect) if not n.startswith('__')))"
    )
    file, names = ask(code, checkout).splitlines()
    assert Path(file) == checkout / "bisect" / "__init__.py"
    assert tuple(names.split()) == SIX_NAMES


def test_the_six_names_are_the_functions_of_the_standard_library(package: Path) -> None:
    scope: dict[str, object] = {}
    exec((package / "__init__.py").read_text(encoding="utf-8"), scope)
    expected = {name: getattr(_bisect, name) for name in SIX_NAMES if hasattr(_bisect, name)}
    assert {name: scope[name] for name in expected} == expected
    assert scope["bisect"] is _bisect.bisect_right
    assert scope["insort"] is _bisect.insort_right


@given(st.lists(st.integers()), st.integers())
def test_it_keeps_a_list_in_order_with_a_key(numbers: list[int], new: int) -> None:
    import hangbisect

    ordered = sorted(numbers, key=neg)
    assert hangbisect.bisect(ordered, -new, key=neg) >= hangbisect.bisect_left(
        ordered, -new, key=neg
    )
    hangbisect.insort(ordered, new, key=neg)
    assert ordered == sorted([*numbers, new], key=neg)


@pytest.mark.parametrize("module", ["random", "tempfile", "asyncio", "statistics"])
def test_modules_that_need_it_work_with_it(module: str, checkout: Path) -> None:
    code = f"import {module}, bisect; print(bisect.__file__)"
    assert Path(ask(code, checkout)) == checkout / "bisect" / "__init__.py"


def test_no_module_of_ours_has_the_name_of_another(package: Path) -> None:
    """`python FOLDER` puts the folder into sys.path, where our names could shadow others."""
    ours = {path.stem for path in package.glob("*.py")}
    ours |= {path.name for path in package.iterdir() if path.is_dir()}
    ours -= {"__init__", "__main__", "__pycache__"}
    theirs = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions())
    assert sorted(ours & (theirs - {"hangbisect"})) == []
