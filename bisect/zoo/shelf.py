"""Where the cases are, and how one is found and loaded."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import HangbisectError, UsageError
from ..rank.argument_types import nearest
from .case import Case

_FILE = re.compile(r"[A-Z]+\d+[a-z]?_\w+\.py")


class BadCase(HangbisectError):
    """A file of the zoo cannot be loaded as a case."""

    help = "How to write one: scenarios/zoo/README.md"


@dataclass(frozen=True)
class Kept:
    """A case as it lies on the shelf."""

    case: Case
    file: Path

    @property
    def module(self) -> str:
        """The name that ranks import it by."""
        return self.file.stem

    @property
    def story(self) -> str:
        """What people reported: the docstring of its module."""
        import ast

        tree = ast.parse(self.file.read_text(encoding="utf-8"))
        return (ast.get_docstring(tree) or "").strip()


def folder() -> Path:
    """Return the folder of the cases: installed beside our modules, in a checkout scenarios/zoo."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "zoo_cases"
    return installed if installed.is_dir() else package.parent / "scenarios" / "zoo"


def all_cases(where: Path | None = None) -> list[Kept]:
    """Return every case, by id: letters first, then numbers as numbers."""
    files = [f for f in (where or folder()).iterdir() if _FILE.fullmatch(f.name)]
    return sorted((load(file) for file in files), key=lambda kept: _order(kept.case.id))


def chosen(words: Sequence[str], shelf: Sequence[Kept]) -> list[Kept]:
    """Return the cases that `words` name by id (I10) or by file (my_cases/A1_mine.py); all for [].

    Raises UsageError for an id that there is not.
    """
    if not words:
        return list(shelf)
    by_id = {kept.case.id.lower(): kept for kept in shelf}
    found = []
    for word in words:
        if word.endswith(".py"):
            found.append(load(Path(word)))
        elif word.lower() in by_id:
            found.append(by_id[word.lower()])
        else:
            ids = [kept.case.id for kept in shelf]
            raise UsageError(
                f"the zoo has no case {word!r}{nearest(word.upper(), ids)}",
                "All cases: hangbisect zoo",
            )
    return found


def load(file: Path) -> Kept:
    """Return the case that a file declares. Raises BadCase if it declares none, or not just one."""
    spec = importlib.util.spec_from_file_location(f"zoo_case_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise BadCase(f"there is no case in {file}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadCase(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    cases = [value for value in vars(module).values() if isinstance(value, Case)]
    if len(cases) != 1:
        raise BadCase(f"{file} declares {len(cases)} cases; it is one a file")
    return Kept(cases[0], file.resolve())


def _order(id: str) -> tuple[str, int, str]:
    letters, number, rest = re.fullmatch(r"(\D*)(\d*)(.*)", id).groups()  # type: ignore[union-attr]
    return letters, int(number or 0), rest
