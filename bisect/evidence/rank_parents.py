"""The program that starts ranks itself: whether it may start more of them, whether it only waits
until its children have ended, and what else belongs to their inference server.

The loop is read from the source. Its condition, and whatever leaves it, must be about the ends of
children alone (poll(), is_alive(), exitcode, waitpid with WNOHANG), and nothing in it may start
anything. Where anything else is called or asked, the answer is no.

A launcher starts all ranks of a node at once. A program that forks or spawns them may read data, or
sleep, before each. One that sleeps in a loop which it leaves only when one of its children has
ended (`waits_for_ends` reads that from its source) starts nobody before that, if they all are
ranks: what else it has started may end at any time, and ranks follow then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from ..base.command_words import is_resource_tracker
from ..base.deadline import call_with_limit
from ..base.launcher_env import Ancestor
from ..base.proc import read_stat
from ..base.process_roles import SERVER_NAMES, find_server_process, is_service, is_spawned_by_server
from .descriptors import parse_socket_inode, read_links, read_sockets
from .kernel import read_thread
from .process import descendants, runs_python, words_of
from .source_tree import find_called_name, find_enclosing_nodes, parse_source, read_source
from .stacks import read_stacks

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.While, ast.For, ast.AsyncFor)
# Of modules that start processes: what else has a poll() is not meant (a message queue's client).
_STARTS_PROCESSES = re.compile(r"\b(?:subprocess|multiprocessing|fork|posix_spawn)\b")
_COUNTS = frozenset(["any", "all", "len", "sum", "list", "tuple", "set", "bool", "sorted"])
_VIEWS = frozenset(["values", "items", "keys", "enumerate", "zip", "reversed", "range", "len"])
# What a loop may do besides: it says something, pauses, or ends its children, or itself.
_SAYS = ("print", "flush", "debug", "info", "warning", "error")
_HARMLESS = frozenset([*_SAYS, "sleep", "kill", "terminate", "send_signal", "killpg", "exit"])


def waits_for_ends(source: str, line: int) -> bool:
    """Return whether the innermost loop around `line`, where a program sleeps, is left only when a
    child has ended, and starts nothing; False for what is no Python. Never raises.
    """
    tree = parse_source(source) if _STARTS_PROCESSES.search(source) else None
    around = find_enclosing_nodes(tree, line) if tree is not None else []
    inside = [node for node in around if isinstance(node, _LOOPS + _SCOPES)]
    loop = inside[-1] if inside else None
    if not isinstance(loop, ast.While) or loop.orelse:
        return False
    checked = _LoopBody()
    endless = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    if not endless and not checked.is_about_ends(loop.test):
        return False
    if not all(map(checked.allows, loop.body)):
        return False
    # What is looked at only after the sleep was perhaps never looked at.
    return any(asked <= line for asked in checked.asked)


class _LoopBody:
    """What a loop does, statement by statement."""

    def __init__(self) -> None:
        self.known: set[str] = set()  # variables whose value changes only when a child ends
        self.statuses: set[str] = set()  # those that are statuses: of use where compared
        self.asked: list[int] = []  # lines where an end is asked for

    def allows(self, statement: ast.stmt) -> bool:
        """Return whether a statement starts nothing, and leaves the loop for an end alone."""
        match statement:
            case ast.Pass() | ast.Continue():
                return True
            case ast.Expr(ast.Constant()):
                return True
            case ast.Expr(ast.Call() as call):
                return _is_harmless(call)
            case ast.Assign(targets=[ast.Name(name)], value=value):
                if self._asks_for_status(value) or self._lists_statuses(value):
                    self.statuses.add(name)
                    return True
                self.known |= {name} if self.is_about_ends(value) else set()
                return name in self.known
            case ast.If():
                return self.is_about_ends(statement.test) and all(
                    _does_little(one) for one in (*statement.body, *statement.orelse)
                )
            case ast.For(target=ast.Name(), orelse=[]):
                return _names_children(statement.iter) and all(map(self.allows, statement.body))
        return False

    def is_about_ends(self, asked: ast.expr) -> bool:
        """Return whether the value of an expression changes only when a child ends."""
        match asked:
            case ast.Constant():
                return True
            case ast.Name(name):
                return name in self.known
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                equal = isinstance(operator, ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
                number = _is_number_literal(right) and not isinstance(left, ast.Call)
                if equal and (_is_none(right) or number) and self._asks_for_status(left):
                    return True
                if isinstance(operator, ast.In | ast.NotIn) and _is_none(left):
                    return self._lists_statuses(right)
                return self.is_about_ends(left) and self.is_about_ends(right)
            case ast.UnaryOp(operand=operand):
                return self.is_about_ends(operand)
            case ast.BoolOp(values=several) | ast.Tuple(elts=several) | ast.List(elts=several):
                return all(map(self.is_about_ends, several))
            case ast.Call():
                return self._is_a_call_about_ends(asked)
            case ast.Subscript(value=value, slice=ast.Constant()):
                return self.is_about_ends(value)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._lists_ends(asked)
        return False

    def _is_a_call_about_ends(self, call: ast.Call) -> bool:
        name = find_called_name(call)
        if name == "waitpid" and any("WNOHANG" in ast.unparse(one) for one in call.args):
            self.asked.append(call.lineno)
            return True
        if name == "is_alive" and not call.args and isinstance(call.func, ast.Attribute):
            self.asked.append(call.lineno)
            return True
        counts = isinstance(call.func, ast.Name) and name in _COUNTS and not call.keywords
        return counts and all(map(self.is_about_ends, call.args))

    def _lists_ends(self, several: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> bool:
        """Return whether a comprehension is one of children, or of what is known of their ends."""
        if len(several.generators) != 1:
            return False
        (over,) = several.generators
        targets = {node.id for node in ast.walk(over.target) if isinstance(node, ast.Name)}
        if not _names_children(over.iter):
            return False
        is_known = isinstance(over.iter, ast.Name) and over.iter.id in self.statuses
        before = set(self.statuses)
        self.statuses = before | targets if is_known else before - targets
        counted = isinstance(several.elt, ast.Name) and several.elt.id in targets and over.ifs
        good = all(map(self.is_about_ends, over.ifs)) and (
            bool(counted) or self.is_about_ends(several.elt)
        )
        self.statuses = before
        return good

    def _lists_statuses(self, asked: ast.expr) -> bool:
        """Return whether an expression is the status of a child, None while it lives, or several
        in a list that is compared later.
        """
        match asked:
            case ast.ListComp(elt=one, generators=[over]):
                return not over.ifs and _names_children(over.iter) and self._asks_for_status(one)
            case ast.Name(name):
                return name in self.statuses
        return False

    def _asks_for_status(self, asked: ast.expr) -> bool:
        match asked:
            case ast.Call(func=ast.Attribute(attr="poll"), args=[], keywords=[]):
                self.asked.append(asked.lineno)
                return True
            case ast.Attribute(attr="exitcode" | "returncode"):
                self.asked.append(asked.lineno)
                return True
            case ast.Name(name):
                return name in self.statuses
        return False


def _is_number_literal(one: ast.expr) -> bool:
    return isinstance(one, ast.Constant) and type(one.value) is int


def _is_none(one: ast.expr) -> bool:
    return isinstance(one, ast.Constant) and one.value is None


def _names_children(over: ast.expr) -> bool:
    """Return whether what is iterated over is there already: no call makes it."""
    calls = [node for node in ast.walk(over) if isinstance(node, ast.Call)]
    return all(find_called_name(call) in _VIEWS for call in calls)


def _is_harmless(call: ast.Call) -> bool:
    return find_called_name(call) in _HARMLESS and not any(
        isinstance(node, ast.Call) for one in _arguments(call) for node in ast.walk(one)
    )


def _arguments(call: ast.Call) -> Iterable[ast.expr]:
    return (*call.args, *(keyword.value for keyword in call.keywords))


def _does_little(statement: ast.stmt) -> bool:
    """Return whether a statement that follows on an end only leaves the loop, or ends others."""
    match statement:
        case ast.Pass() | ast.Continue() | ast.Break() | ast.Return() | ast.Raise():
            return True
        case ast.Expr(ast.Call() as call):
            return _is_harmless(call)
        case ast.For(target=ast.Name(), orelse=[]):
            return _names_children(statement.iter) and all(map(_does_little, statement.body))
    return False


LIMIT = 2.0  # seconds for the stack and the source of such a program
_SLEEPS = frozenset(["nanosleep", "clock_nanosleep"])
_HEARS = frozenset(["read", "readv", "recvfrom", "recvmsg"])


async def describe_busy_parent(ranks: Collection[int], limit: float = LIMIT) -> str:
    """Return in words which process, the parent of one of these (pids), is not done with starting
    ranks as far as its main thread shows: it sleeps or computes, and waits for nobody. "" for none.

    A rank that is the parent of others is none: it waits for them, or goes on without. Nor is a
    launcher, or Ray, which starts all at once: that it is one its command says, for any program may
    set the variables of torchrun.
    """
    parents = {about.ppid for pid in ranks if (about := read_stat(pid)) is not None}
    for pid in sorted(parents - set(ranks)):
        words = words_of(pid)
        if Ancestor({}, words).launcher or is_service(words):
            continue
        does, is_asleep = _describe_work(pid)
        if does and not (is_asleep and await _waits_for_its_ranks(pid, ranks, limit)):
            return does
    return ""


async def describe_hearing_parent(ranks: Collection[int], limit: float = LIMIT) -> str:
    """Return in words which process, the parent of one of these (pids), waits for what one of them
    is to write into a pipe, or to send over a pair of sockets; "" for none, and for a launcher.
    """
    parents = {about.ppid for pid in ranks if (about := read_stat(pid)) is not None}
    for pid in sorted(parents - set(ranks)):
        words = words_of(pid)
        if pid <= 1 or Ancestor({}, words).launcher or is_service(words):
            continue
        try:
            said = await call_with_limit(_describe_hearing, pid, ranks, limit=limit, key="hears")
        except (OSError, TimeoutError):
            continue
        if said:
            return said
    return ""


def _describe_hearing(pid: int, ranks: Collection[int]) -> str:
    main = read_thread(pid, pid, [])
    call = main.syscall if main is not None else None
    if main is None or call is None or call.name not in _HEARS or call.args[0] >= 1 << 31:
        return ""
    link = read_links(pid).get(call.args[0], "")
    inode = parse_socket_inode(link)
    if inode is not None:
        one = read_sockets().get(inode)
        peer = one.peer_inode if one is not None and one.family == "unix" else None
        wanted = f"socket:[{peer}]" if peer else ""
    else:
        wanted = link if link.startswith("pipe:") else ""
    for rank in ranks if wanted else ():
        if wanted in read_links(rank).values():
            who = f"process {pid} ({main.comm}), which starts the ranks,"
            return f"{who} waits for what process {rank} is to tell it"
    return ""


def _describe_work(pid: int) -> tuple[str, bool]:
    """Return in words what the main thread of such a process does, "" if it waits for somebody;
    and whether it is asleep.
    """
    main = read_thread(pid, pid, []) if pid > 1 else None
    if main is None:
        return "", False
    who = f"process {pid} ({main.comm}), which starts the ranks,"
    if main.state in ("R", "D"):
        return f"{who} {'computes' if main.state == 'R' else 'reads or writes a file'}", False
    is_asleep = main.syscall is not None and main.syscall.name in _SLEEPS
    return (f"{who} sleeps" if is_asleep else ""), is_asleep


async def _waits_for_its_ranks(pid: int, ranks: Collection[int], limit: float) -> bool:
    """Return whether a process that sleeps does so between two looks at whether its ranks have
    ended, as its stack and its source show; False where it has another thread, that may start more,
    or another child.
    """
    if not all(child in ranks or _is_a_helper(child) for child in _list_children(pid)):
        return False
    threads = (await read_stacks(pid, limit=limit)).threads
    frame = next((one for t in threads for one in t.frames if not one.native), None)
    if len(threads) != 1 or frame is None or not frame.file.startswith("/"):
        return False
    try:
        source = await call_with_limit(read_source, frame.file, limit=limit, key=("source of", pid))
    except TimeoutError:
        return False
    return waits_for_ends(source, frame.line)


def _list_children(pid: int) -> list[int]:
    """Return the children of a process that live."""
    known = ((child, read_stat(child)) for child in descendants([pid]))
    return [child for child, about in known if about and about.ppid == pid and about.state != "Z"]


def _is_a_helper(pid: int) -> bool:
    """Return whether a process is one that multiprocessing starts beside the job's own."""
    return is_resource_tracker(words_of(pid))


_DEEPEST = 8  # processes of a server, one above the other


def list_server_processes(ranks: Collection[int]) -> list[int]:
    """Return the processes of the server of these ranks (pids) that are neither ranks nor were
    started by one, what started a rank before all that has started it; [] where they belong to
    none.
    """
    above = list(dict.fromkeys(one for pid in ranks for one in _servers_above(pid)))
    if not above:
        return []
    inside = {*ranks, *descendants(ranks)}
    beside = [pid for pid in descendants(above) if pid not in inside and pid not in above]
    return [pid for pid in (*above, *beside) if not is_resource_tracker(words_of(pid))]


def _servers_above(pid: int) -> Iterator[int]:
    """Yield what has started a process of a server, up to the server itself: the last one. Only a
    Python has.
    """
    for _ in range(_DEEPEST):
        about = read_stat(pid)
        if about is None or not about.comm.startswith(SERVER_NAMES) or about.ppid <= 1:
            return
        role = find_server_process(words_of(pid))
        if not (is_spawned_by_server(role, pid, about.session) and runs_python(about.ppid)):
            return
        pid = about.ppid
        yield pid
