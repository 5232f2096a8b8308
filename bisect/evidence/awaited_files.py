"""Files whose being there is a lock, and which threads wait to disappear: their paths, read off the
loop in the source, how old they are, and who has them open.

torch/utils/file_baton.py is such a loop, and so are its copies and many that people write. What the
path is, the source and the text in local variables tell together; what they do not tell stays
unknown.

Whoever makes such a file mostly closes it at once, so that nobody has it open says little. Many
write their pid into it (filelock's SoftFileLock, Debian's lockfile-create): that process may be
gone, or the number may be another process's by now. On a network file system it may be one of
another machine.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..base.files import NETWORK_FILE_SYSTEM, find_file_system
from ..base.library_functions import is_library_file
from ..base.masking import mask_text
from ..base.proc import LARGEST, read_stat
from ..base.process_facts import AwaitedFile, Frame, Kernel, Thread
from .descriptors import find_holders
from .source_tree import find_called_name, find_enclosing_nodes, parse_source, read_source
from .syscall_arguments import read_outer_ids

_MOST_INNER = 4  # frames of which one may have the loop
_MOST_FRAMES = 12  # in which a lock's object may have been made
_MOST_STEPS = 12  # from an expression to its text
_ASKS = frozenset(["exists", "isfile", "lexists", "is_file", "isdir", "is_dir"])
_MAKES_FOLDER = frozenset(["mkdir", "symlink", "link", "symlink_to", "hardlink_to"])
# Which argument names the link (os.symlink(src, dst)), and methods of it (Path.symlink_to(target)).
_LINKS_AT = {"symlink": 1, "link": 1}
_METHODS_OF_LINKS = frozenset(["symlink_to", "hardlink_to"])
_SAME_PATH = frozenset(["str", "Path", "PosixPath", "fspath", "abspath", "realpath", "PurePath"])
# Without one of these a source has no such loop: it is not worth parsing.
_WORDS = (
    *("exists(", "isfile(", "is_file(", "isdir(", "is_dir("),
    *("O_EXCL", '"x', "'x", "mkdir", "touch(", "symlink", "link("),
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Place(NamedTuple):
    """Where an expression stands: the frame whose local variables it sees, None for none."""

    frame: int | None
    way: tuple[ast.AST, ...]  # from the module to its function


def find_polled_path(frames: Sequence[Frame]) -> tuple[Frame, str] | None:
    """Return the frame (of `frames`, innermost first) with the loop, and the path; None where there
    is no such loop, or the path is not known. May block with the disk of the sources.
    """
    python = [f for f in frames if not f.native][:_MOST_FRAMES]
    for number, frame in enumerate(python[:_MOST_INNER]):
        if is_library_file(frame.file) and "-packages/" not in frame.file:
            continue
        for node, place in _list_polled(frame, number):
            text = _Texts(python).find(node, place)
            if text:
                return frame, text
    return None


def _list_polled(frame: Frame, number: int) -> Iterator[tuple[ast.expr, _Place]]:
    """Yield the expressions of the paths for which the loop around a frame's line waits."""
    source = read_source(frame.file)
    tree = parse_source(source) if any(word in source for word in _WORDS) else None
    if tree is None:
        return
    way = find_enclosing_nodes(tree, frame.line)
    first = max((n for n, node in enumerate(way) if isinstance(node, _Function)), default=0)
    here = _Place(number, tuple(way[: first + 1]))
    for loop in reversed(way[first:]):
        if not isinstance(loop, ast.While | ast.For):
            continue
        for node in _asked_for(loop):
            yield node, here
        for node in _made_in(loop):
            yield node, here
        for helper in _called_functions(loop, tree):
            inside = tuple(find_enclosing_nodes(tree, helper.lineno))
            for node in _made_in(helper):
                yield from _seen_from(node, _Place(None, inside), helper, loop, here)


def _seen_from(
    node: ast.expr, inside: _Place, helper: _Function, loop: ast.AST, here: _Place
) -> Iterator[tuple[ast.expr, _Place]]:
    """Yield the path of a helper: where it is a parameter, what the loop gives for it."""
    names = [one.arg for one in helper.args.args if one.arg not in ("self", "cls")]
    if not isinstance(node, ast.Name) or node.id not in names:
        yield node, inside
        return
    for call in _calls_in(loop):
        given = _argument(call, names, node.id) if find_called_name(call) == helper.name else None
        if given is not None:
            yield given, here


def _asked_for(loop: ast.While | ast.For) -> Iterator[ast.expr]:
    """Yield the paths that are to go: the loop goes on while they are there."""
    if isinstance(loop, ast.While):
        yield from _paths_asked(loop.test, there=True)
    for statement in loop.body:
        leaves = isinstance(statement, ast.If) and isinstance(
            statement.body[-1], ast.Break | ast.Return
        )
        if isinstance(statement, ast.If) and leaves:
            yield from _paths_asked(statement.test, there=False)


def _paths_asked(test: ast.expr, there: bool) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for one in test.values:
            yield from _paths_asked(one, there)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _paths_asked(test.operand, not there)
    elif there and isinstance(test, ast.Call) and find_called_name(test) in _ASKS:
        yield from _path_of(test)


def _path_made(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the path that a call makes: of a link that is its own, and not where it leads."""
    name = find_called_name(call)
    if name in _LINKS_AT and len(call.args) > _LINKS_AT[name]:
        yield call.args[_LINKS_AT[name]]
    elif name in _METHODS_OF_LINKS and isinstance(call.func, ast.Attribute):
        yield call.func.value
    else:
        yield from _path_of(call)


def _path_of(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the path that a call is about: its first argument, else the object of the method."""
    if call.args:
        yield call.args[0]
    elif isinstance(call.func, ast.Attribute):
        yield call.func.value


def _made_in(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the paths that a `try` in a node makes, which fails where they are there."""
    for one in ast.walk(node):
        if isinstance(one, ast.Try) and one.handlers:
            for statement in one.body:
                for call in _calls_in(statement):
                    if _makes_a_new_file(call):
                        yield from _path_made(call)


def _makes_a_new_file(call: ast.Call) -> bool:
    name, words = find_called_name(call), [ast.unparse(one) for one in call.args]
    words += [ast.unparse(one.value) for one in call.keywords]
    if name == "open":
        modes = (word.strip("'\"") for word in words if word[:1] in "'\"")
        return any("O_EXCL" in word for word in words) or any(
            mode.startswith("x") and len(mode) <= 3 for mode in modes
        )
    given = [ast.unparse(one.value) for one in call.keywords if one.arg == "exist_ok"]
    if name == "touch":  # may be there already, unless it says otherwise
        return given == ["False"]
    return name in _MAKES_FOLDER and given in ([], ["False"])


def _called_functions(loop: ast.AST, tree: ast.AST) -> Iterator[_Function]:
    names = {find_called_name(call) for call in _calls_in(loop)}
    for node in ast.walk(tree):
        if isinstance(node, _Function) and node.name in names:
            yield node


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def _argument(call: ast.Call, names: Sequence[str], wanted: str) -> ast.expr | None:
    """Return what a call gives for the parameter `wanted`; `names` are those of the function."""
    for one in call.keywords:
        if one.arg == wanted:
            return one.value
    at = names.index(wanted)
    return call.args[at] if at < len(call.args) else None


class _Texts:
    """What expressions are as text, seen from the frames of a thread."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = frames
        self._left = _MOST_STEPS

    def find(self, node: ast.expr, place: _Place) -> str:
        """Return the text of an expression, "" where it is not known."""
        self._left -= 1
        if self._left < 0:
            return ""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else ""
        if isinstance(node, ast.Name):
            return self._of_name(node.id, place)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, place)
        if isinstance(node, ast.JoinedStr):
            return self._join([self._of_part(part, place) for part in node.values], "")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            sides = [self.find(node.left, place), self.find(node.right, place)]
            return self._join(sides, "" if isinstance(node.op, ast.Add) else "/")
        return self._of_call(node, place) if isinstance(node, ast.Call) else ""

    def _of_part(self, part: ast.expr, place: _Place) -> str:
        return self.find(part.value if isinstance(part, ast.FormattedValue) else part, place)

    @staticmethod
    def _join(parts: Sequence[str], between: str) -> str:
        """Return the whole; "" where a part is not known."""
        if not parts or not all(parts):
            return ""
        return posixpath.join(*parts) if between else "".join(parts)

    def _of_call(self, call: ast.Call, place: _Place) -> str:
        name, parts = find_called_name(call), call.args
        if name == "joinpath" and isinstance(call.func, ast.Attribute):
            parts = [call.func.value, *parts]
        if name in ("join", "Path", "joinpath") and len(parts) > 1:
            return self._join([self.find(one, place) for one in parts], "/")
        return self.find(call.args[0], place) if name in _SAME_PATH and call.args else ""

    def _of_name(self, name: str, place: _Place) -> str:
        if place.frame is not None:
            text = dict(self._frames[place.frame].texts).get(name)
            if text:
                return text
        for scope in (place.way[-1:], place.way[:1]):
            for value in _values_given_to(name, scope):
                if text := self.find(value, place):
                    return text
        return ""

    def _of_attribute(self, node: ast.Attribute, place: _Place) -> str:
        """Return `self.path`: what a method of the class sets it to, of its parameters what the
        frame gives for them that has made the object.
        """
        owner = next((one for one in reversed(place.way) if isinstance(one, ast.ClassDef)), None)
        if owner is None or not isinstance(node.value, ast.Name) or node.value.id != "self":
            return ""
        for method in owner.body:
            if not isinstance(method, _Function):
                continue
            for value in _values_given_to(f"self.{node.attr}", (method,)):
                text = self.find(value, _Place(None, (*place.way[:1], owner, method)))
                text = text or self._given_to_constructor(value, owner, method)
                if text:
                    return text
        return ""

    def _given_to_constructor(self, value: ast.expr, owner: ast.ClassDef, method: _Function) -> str:
        names = [one.arg for one in method.args.args[1:]]
        wanted = value.id if isinstance(value, ast.Name) else ""
        if isinstance(value, ast.Call) and find_called_name(value) in _SAME_PATH and value.args:
            wanted = value.args[0].id if isinstance(value.args[0], ast.Name) else ""
        if method.name != "__init__" or wanted not in names:
            return ""
        for number, frame in enumerate(self._frames):
            source = read_source(frame.file)
            tree = parse_source(source) if owner.name in source else None
            way = find_enclosing_nodes(tree, frame.line) if tree is not None else []
            function = next((one for one in reversed(way) if isinstance(one, _Function)), None)
            for call in _calls_in(function or (way[0] if way else ast.Module([], []))):
                given = (
                    _argument(call, names, wanted) if find_called_name(call) == owner.name else None
                )
                outer = _Place(number, (way[0], function or way[0])) if way else None
                if given is not None and outer and (text := self.find(given, outer)):
                    return text
        return ""


def _values_given_to(target: str, scope: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yield what the statements of a function or a module set a name or an attribute to."""
    for node in scope:
        inside = ast.walk(node) if isinstance(node, _Function) else getattr(node, "body", ())
        for one in inside:
            targets = one.targets if isinstance(one, ast.Assign) else []
            if isinstance(one, ast.AnnAssign) and one.value is not None:
                targets = [one.target]
            if any(ast.unparse(each) == target for each in targets):
                value = getattr(one, "value", None)
                if isinstance(value, ast.expr):
                    yield value


def format_polling_place(frame: Frame) -> str:
    """Return a frame in words: "Baton.wait (baton.py:49)"."""
    return f"{frame.name} ({os.path.basename(frame.file)}:{frame.line})"


_TICKS = os.sysconf("SC_CLK_TCK")
_LARGEST_NOTE = 256  # bytes: what names its maker is short
_NUMBER = re.compile(r"(?<![\w.])\d{1,7}(?![\w.])")
_WORD = re.compile(r"[A-Za-z][\w.-]+")
_LABELS = frozenset(["pid", "host", "hostname", "owner", "by", "locked", "process"])
_CLOCKS_APART = 2.0  # seconds by which a file's time may differ from that of its maker's start
# In which a loop waits between two tries; a futex with a time limit is Event.wait(0.1).
_PAUSES = frozenset(["nanosleep", "clock_nanosleep", "select", "pselect6", "restart_syscall"])


def find_awaited_files(
    pid: int, threads: Sequence[Thread], kernel: Sequence[Kernel]
) -> tuple[AwaitedFile, ...]:
    """Return the files that threads of a process wait to disappear and that are there. May block
    with the disks of these and of the sources.
    """
    polled = list(_list_polled_by(pid, threads, kernel))
    ends = find_holders([path for _, _, path, _ in polled])
    return tuple(
        _make_awaited_file(pid, thread, place, path, about, [end.pid for end in ends[path]])
        for thread, place, path, about in polled
    )


def _list_polled_by(
    pid: int, threads: Sequence[Thread], kernel: Sequence[Kernel]
) -> Iterator[tuple[int, str, str, os.stat_result]]:
    tasks = {task.tid: task for task in kernel}
    for thread in threads:
        task = tasks.get(thread.os_id or 0)
        if task is None or thread.os_id is None or not _pauses(task):
            continue
        found = find_polled_path(thread.frames)
        about = _stat_for_process(pid, found[1]) if found is not None else None
        if found is not None and about is not None:
            yield thread.os_id, format_polling_place(found[0]), found[1], about


def _pauses(task: Kernel) -> bool:
    call = task.syscall
    if call is None:
        return False
    return call.name in _PAUSES or (call.name == "futex" and call.timeout is not None)


def _stat_for_process(pid: int, path: str) -> os.stat_result | None:
    """Return what a path is to a process: it may have a root or mounts of its own."""
    try:
        return os.lstat(_path_inside(pid, path))
    except (OSError, ValueError):
        return None


def _path_inside(pid: int, path: str) -> str:
    return f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}"


def _make_awaited_file(
    pid: int, thread: int, place: str, path: str, about: os.stat_result, holders: Sequence[int]
) -> AwaitedFile:
    holder = next((one for one in holders if one != pid), None)
    held_by = read_stat(holder) if holder is not None else None
    maker = _read_maker(pid, path, about)
    lives = _lives(maker, about.st_mtime) if maker is not None else None
    named = read_stat(maker) if maker is not None and lives else None
    return AwaitedFile(
        mask_text(path),
        round(max(0.0, time.time() - about.st_mtime), 3),
        thread,
        place,
        holder=holder,
        holder_name=held_by.comm if held_by else "",
        maker=maker,
        maker_lives=lives,
        maker_name=named.comm if named else "",
        file_system=_read_network_file_system(pid, path),
    )


def _read_maker(pid: int, path: str, about: os.stat_result) -> int | None:
    """Return the pid that a file names, None for none that we would know."""
    if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size <= _LARGEST_NOTE:
        return None
    if read_outer_ids(pid):
        return None  # a pid namespace: its numbers are not ours
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with open(os.open(_path_inside(pid, path), flags), "rb") as file:
            data = file.read(_LARGEST_NOTE + 1)
    except OSError:
        return None
    return parse_maker(data.decode(errors="replace"), socket.gethostname())


def parse_maker(text: str, host: str) -> int | None:
    """Return the pid that the text of a lock file names; None where it names none, or may name one
    of another machine than `host`.
    """
    if len(text) > _LARGEST_NOTE:
        return None
    words = {word for word in _WORD.findall(text) if word.lower() not in _LABELS}
    if words and host not in words:
        return None
    numbers = (int(number) for number in _NUMBER.findall(text.replace(host, " ")))
    return next((number for number in numbers if number > 1), None)


def _lives(maker: int, made: float) -> bool:
    """Return whether a process lives that had started when a file was made."""
    found = read_stat(maker)
    if found is None or found.state in "ZX":
        return False
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + found.started / _TICKS <= made + _CLOCKS_APART


def _read_network_file_system(pid: int, path: str) -> str:
    """Return the kind of the file system that a path is on, "" for one of this machine alone."""
    try:
        with open(f"/proc/{pid}/mountinfo", errors="replace") as file:
            mounts = file.read(LARGEST)
        whole = os.path.join(os.readlink(f"/proc/{pid}/cwd"), path)
    except OSError:
        return ""
    kind = find_file_system(mounts, os.path.normpath(whole))
    return kind if NETWORK_FILE_SYSTEM.fullmatch(kind) else ""
