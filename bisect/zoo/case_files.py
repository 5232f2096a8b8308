"""Where the cases are, how one is found and loaded, and what not every machine has (names for
Case.needs, and how each is looked for); and a case with all names of its own changed: recall must
not come from names.

Changed are: the module's name, functions, classes and variables that it defines (not methods, their
parameters and attributes, which libraries call by name), what it prints, logs and raises in words
of its own, and the same in Python programs that it has as text. Gone are docstrings and comments.
Kept are the names of libraries, and words that a constant whose name begins with THEIRS holds:
those of a library's message, which the case repeats.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import keyword
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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


def load_all_cases() -> list[CaseFile]:
    """Return every case, by id: letters first, then numbers as numbers."""
    files = [f for f in find_folder().iterdir() if _CASE_FILE.fullmatch(f.name)]
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


THEIRS = "THEIRS"
_SAYING = re.compile(
    r"print|say|log|debug|info|warn|warning|error|exception|critical|exit|fail|set_description"
)
_Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Documented = ast.Module | _Defined
_PRELUDE = {"at_end", "ready"}  # of zoo/parts/processes.py: what a helper's program is asked for
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


def rename_case(source: str, module: str) -> tuple[str, str]:
    """Return the source of a case with its own names changed, and the new name of its module."""
    new = _Names(salt=module)
    text = _rename(ast.parse(source), new, module)
    return text, new.of(module)


class _Names:
    """New names for old: the same for the same case, and no word of any library or of ours."""

    def __init__(self, salt: str) -> None:
        self._salt = salt
        self._given: dict[str, str] = {}

    def of(self, old: str) -> str:
        """Return the new name of `old`, in its style: CONSTANT, ClassName, _private, function."""
        if old not in self._given:
            word = self._word(old)
            while word in self._given.values() or keyword.iskeyword(word):
                word = self._word(word)
            self._given[old] = word
        new = self._given[old]
        bare = old.lstrip("_")
        styled = new.upper() if bare.isupper() else new.title() if bare[:1].isupper() else new
        return old[: len(old) - len(bare)] + styled

    def _word(self, old: str) -> str:
        digest = hashlib.sha256(f"{self._salt}/{old}".encode()).digest()
        return "".join(_SYLLABLES[byte % len(_SYLLABLES)] for byte in digest[:3])


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines and nobody else calls by name."""
    own: set[str] = set()
    theirs = {*dir(builtins), *_PRELUDE}
    for node, in_class in _walk_with_class(tree, False):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            (theirs if in_class else own).add(node.name)
            given, by_name = _parameters(node.args)
            theirs |= given | by_name if in_class else by_name
            own |= given
        elif isinstance(node, ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Lambda):
            given, by_name = _parameters(node.args)
            theirs |= by_name
            own |= given
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            (theirs if in_class else own).add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            own.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            theirs.update((a.asname or a.name).partition(".")[0] for a in node.names)
        elif isinstance(node, ast.keyword) and node.arg:
            theirs.add(node.arg)
    return {name for name in own - theirs if not name.startswith("__")}


def _parameters(arguments: ast.arguments) -> tuple[set[str], set[str]]:
    """Return the parameters that are surely given by position, and those that may be by name."""
    plain = [*arguments.posonlyargs, *arguments.args]
    certain = plain[: len(plain) - len(arguments.defaults)]
    stars = [a for a in (arguments.vararg, arguments.kwarg) if a]
    given = {a.arg for a in (*certain, *stars)}
    return given, {a.arg for a in (*plain, *arguments.kwonlyargs)} - given


def _walk_with_class(node: ast.AST, in_class: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield every node, and whether it stands directly in the body of a class."""
    for child in ast.iter_child_nodes(node):
        yield child, in_class
        if isinstance(child, ast.ClassDef):
            yield from _walk_with_class(child, True)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk_with_class(child, False)
        else:
            yield from _walk_with_class(child, in_class)


def _rename(tree: ast.Module, new: _Names, module: str) -> str:
    renamer = _Renamer({name: new.of(name) for name in sorted(own_names(tree))}, new, module)
    changed = renamer.visit(tree)
    return ast.unparse(ast.fix_missing_locations(changed)) + "\n"


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: dict[str, str], new: _Names, module: str) -> None:
        self._names = names
        self._new = new
        self._module = module
        self._theirs = 0  # how many constants of THEIRS words we are in
        self._saying = 0  # how many calls that say something

    def _of(self, name: str) -> str:
        return self._names.get(name, name)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._of(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._of(node.arg)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._define(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._define(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._define(node)

    def _define(self, node: _Defined) -> ast.AST:
        node.name = self._of(node.name)
        _drop_docstring(node)
        return self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        _drop_docstring(node)
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._of(node.name) if node.name else None
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self._of(name) for name in node.names]
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [self._of(name) for name in node.names]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        theirs = any(isinstance(t, ast.Name) and t.id.startswith(THEIRS) for t in node.targets)
        self._theirs += theirs
        try:
            return self.generic_visit(node)
        finally:
            self._theirs -= theirs

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self._said(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name == "Case":
            self._rename_uses(node)
        terminal = ast.unparse(called) in ("sys.stdout.write", "sys.stderr.write")
        says = terminal or bool(_SAYING.fullmatch(name))
        return self._said(node) if says else self.generic_visit(node)

    def _said(self, node: ast.AST) -> ast.AST:
        self._saying += 1
        try:
            return self.generic_visit(node)
        finally:
            self._saying -= 1

    def _rename_uses(self, call: ast.Call) -> None:
        """The functions that --use names: {"trainer": "make_trainer"}."""
        for word in call.keywords:
            if word.arg == "uses" and isinstance(word.value, ast.Dict):
                for value in word.value.values:
                    if isinstance(value, ast.Constant):
                        value.value = self._of(str(value.value))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and not self._theirs:
            node.value = self._text(node.value)
        return node

    def _text(self, text: str) -> str:
        program = _program(text)
        if program is not None:
            return _rename(program, self._new, self._module)
        if self._saying:
            text = re.sub(r"[A-Za-z_]{3,}", lambda found: self._new.of(found[0]), text)
        return text.replace(self._module, self._new.of(self._module))


def _drop_docstring(
    node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
) -> None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        node.body = node.body[1:] or [ast.Pass()]


def _program(text: str) -> ast.Module | None:
    """Return the program that `text` is, None if it is none: words, a path, C."""
    if "\n" not in text.strip():
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    return tree if any(not isinstance(node, ast.Expr) for node in tree.body) else None


def read_renamed(file: Path) -> tuple[str, str]:
    """Return source and module name of the renamed copy of the case in `file`."""
    return rename_case(file.read_text(encoding="utf-8"), file.stem)


def load_renamed(source: str, module: str, original: Case) -> Case:
    """Return the case that a renamed copy declares, with the names that we know it by."""
    with tempfile.TemporaryDirectory(prefix="zoo-renamed-") as folder:
        file = Path(folder) / f"{module}.py"
        file.write_text(source, encoding="utf-8")
        made = load_case(file).case
    return replace(made, id=original.id, title=original.title, truth=original.truth)
