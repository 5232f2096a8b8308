"""Where the cases are, how one is found and loaded, and what not every machine has: names for
Case.needs, and how each is looked for.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..base.argument_types import nearest
from ..base.errors import HangbisectError, UsageError
from .case import Case


def find_missing(needs: Iterable[str]) -> str:
    """Return why a case with these needs cannot run here, "" if it can. Raises KeyError."""
    return next((why for need in needs if (why := _look_for(need))), "")


@cache
def _look_for(need: str) -> str:
    return NEEDS[need]()


def _look_for_root() -> str:
    return "" if os.geteuid() == 0 else "needs root"


def _look_for_programs(*names: str) -> Callable[[], str]:
    def look() -> str:
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        gone = [name for name in names if not shutil.which(name, path=path)]
        return f"needs {', '.join(gone)}" if gone else ""

    return look


def _try_command(*command: str) -> Callable[[], str]:
    def look() -> str:
        no_programs = _look_for_programs(command[0])()
        if no_programs:
            return no_programs
        quiet = subprocess.DEVNULL
        tried = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=20)
        return "" if tried.returncode == 0 else f"{' '.join(command)} is not allowed here"

    return look


def _look_for_loop_mount() -> str:
    if not os.path.exists("/dev/loop-control"):
        return "needs loop devices"
    return _look_for_root() or _look_for_programs("mkfs.ext4", "fsfreeze", "mount", "losetup")()


def _look_for_writable(*places: str) -> Callable[[], str]:
    def look() -> str:
        there = any(os.access(place, os.W_OK) for place in places)
        return _look_for_root() or ("" if there else f"needs {' or '.join(places)}")

    return look


def _look_for_library(name: str) -> Callable[[], str]:
    return lambda: "" if importlib.util.find_spec(name) else f"needs the library {name}"


def _look_for_gpu() -> str:
    if not os.path.exists("/dev/nvidiactl"):
        return "needs a GPU"
    torch = importlib.util.find_spec("torch")
    version = Path(torch.origin or "").with_name("version.py") if torch else None
    if version is None or re.search(r"^cuda\b.*= None$", version.read_text(), re.MULTILINE):
        return "needs torch built with CUDA"
    return ""


NEEDS: dict[str, Callable[[], str]] = {
    "root": _look_for_root,
    "unshare": _try_command("unshare", "--mount", "true"),
    "network namespace": _try_command(
        *("unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other")
    ),
    "loop mount": _look_for_loop_mount,
    "compiler": _look_for_programs("g++", "ninja"),
    "gcc": _look_for_programs("gcc"),
    "freezer": _look_for_writable(
        "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.subtree_control"
    ),
    "slow disk": _look_for_writable("/sys/fs/cgroup/blkio/cgroup.procs"),
    "gpu": _look_for_gpu,
    "mpi4py": _look_for_library("mpi4py"),
    "peft": _look_for_library("peft"),
}


_CASE_FILE = re.compile(r"[A-Z]+\d+[a-z]?_\w+\.py")


class BadCase(HangbisectError):
    """A file of the zoo cannot be loaded as a case."""

    help = "How to write one: scenarios/zoo/README.md"


@dataclass(frozen=True)
class CaseFile:
    """A case, and the file that declares it."""

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


def find_folder() -> Path:
    """Return the folder of the cases: installed beside our modules, in a checkout scenarios/zoo."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "zoo_cases"
    return installed if installed.is_dir() else package.parent / "scenarios" / "zoo"


def load_all_cases(where: Path | None = None) -> list[CaseFile]:
    """Return every case, by id: letters first, then numbers as numbers."""
    files = [f for f in (where or find_folder()).iterdir() if _CASE_FILE.fullmatch(f.name)]
    return sorted((load_case(file) for file in files), key=lambda kept: _order_of_id(kept.case.id))


def choose_cases(words: Sequence[str], cases: Sequence[CaseFile]) -> list[CaseFile]:
    """Return the cases that `words` name by id (I10) or by file (my_cases/A1_mine.py); all for [].

    Raises UsageError for an id that there is not.
    """
    if not words:
        return list(cases)
    by_id = {kept.case.id.lower(): kept for kept in cases}
    found = []
    for word in words:
        if word.endswith(".py"):
            found.append(load_case(Path(word)))
        elif word.lower() in by_id:
            found.append(by_id[word.lower()])
        else:
            ids = [kept.case.id for kept in cases]
            raise UsageError(
                f"the zoo has no case {word!r}{nearest(word.upper(), ids)}",
                "All cases: hangbisect zoo",
            )
    return found


def load_case(file: Path) -> CaseFile:
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
    return CaseFile(cases[0], file.resolve())


def _order_of_id(id: str) -> tuple[str, int, str]:
    letters, number, rest = re.fullmatch(r"(\D*)(\d*)(.*)", id).groups()  # type: ignore[union-attr]
    return letters, int(number or 0), rest
