"""A program plainly and below `hangbisect run`, at the same time, in the same surroundings.

What is compared is all that a user, a shell or a parent can see of it: exit status, standard
output, standard error without our own lines, the files that are there afterwards, and the
processes. The plain run is the truth; nothing here knows how the watch is made. Each has a folder
of its own, which both see at the same path.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import hangbisect
import jobs
import pytest
from packaging.requirements import Requirement

PROGRAMS = Path(__file__).parent / "programs"
FAKE_TORCH = PROGRAMS / "fake_torch"  # on PYTHONPATH: who imports it is a rank in milliseconds
PACKAGE = Path(hangbisect.__path__[0])
HANGBISECT = Path(sys.executable).parent / "hangbisect"
_OF_OTHERS = "/var/tmp/hangbisect-for-others-"
DEADLINE = 120.0  # seconds for a program to end, or for something in it, on a busy machine
SETTLED = 0.3  # seconds after which what a plain program has left is looked at
GONE = 60.0  # seconds for what is ours to be gone once the command has ended, on a busy machine

_STAMP = re.compile(r"\[\d\d:\d\d:\d\d\.\d{3}\]\[\+")
_SENTENCE = re.compile(r"hangbisect: ")
_VERDICT = re.compile(r"(OK|CRASH|HANG|SILENT|SLOW|INTERRUPTED)  ")
# A label of ten columns, its next lines, and the stack of the culprit.
_OF_A_VERDICT = re.compile(r"[a-z ]{9} \S| {2}|[a-z ]+: |rank \d|Process |Thread |no stack |$")

Meanwhile = Callable[["Started"], None]
T = TypeVar("T")


def at_once(*runs: Callable[[], T]) -> list[T]:
    """Call all of `runs` at the same time, and return what they return: programs mostly wait."""
    with ThreadPoolExecutor(len(runs)) as pool:
        return [each.result() for each in [pool.submit(run) for run in runs]]


@dataclass(frozen=True)
class Program:
    """What is run in both ways."""

    script: str
    watch: Sequence[str] = ()
    meanwhile: Meanwhile | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None
    before: Sequence[str] = ()
    user: int | None = None
    may_stay: str = ""


@dataclass(frozen=True)
class Run:
    """How one of the two went."""

    status: int  # as a shell has it: 128 and the number of a signal
    out: str
    err: str
    left: tuple[str, ...]  # processes by their command lines, files by their paths
    folder: Path

    @property
    def theirs(self) -> list[str]:
        """The lines of standard error that are not ours."""
        return list(_without_ours(self.err))

    @property
    def ours(self) -> list[str]:
        """The lines of standard error that are ours."""
        theirs = self.theirs
        return [line for line in self.err.splitlines() if line not in theirs]

    @property
    def verdict(self) -> dict[str, Any]:
        """What stands in the run folder, {} for nothing."""
        return jobs.verdict_of(self.folder / "run")

    def __str__(self) -> str:
        left = "\n".join(self.left)
        return f"status {self.status}\n{self.out}--- stderr\n{self.err}--- left\n{left}"


@dataclass(frozen=True)
class Both:
    """A program that was run in both ways."""

    plain: Run
    watched: Run

    def check(self, *but: str) -> Both:
        """Assert that they are the same, except for the fields named in `but`."""
        plain, watched = self.plain, self.watched
        for name in ("status", "out", "theirs", "left"):
            if name not in but:
                assert getattr(watched, name) == getattr(plain, name), f"{name}:\n{self}"
        return self

    def __str__(self) -> str:
        return f"=== plain: {self.plain}\n=== watched: {self.watched}"


class Started:
    """One of the two, while it runs. `pid` is its first process: the program, or our own front.
    `folder` is where the program's folder lies for us.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, is_watched: bool) -> None:
        self.process, self.pid = process, process.pid
        self.folder, self.is_watched = folder, is_watched

    def said(self) -> str:
        """Return what it has printed on standard output so far."""
        return (self.folder / "out").read_text(errors="replace")

    def errors(self) -> str:
        """Return what was printed on standard error so far."""
        return (self.folder / "err").read_text(errors="replace")

    def until(self, text: str) -> None:
        """Wait until it has printed `text`."""
        self.until_true(lambda: text in self.said(), repr(text))

    def enough(self) -> None:
        """Let a program go on that waits for a file `enough`."""
        (self.folder / "cwd" / "enough").touch()

    def until_true(self, true: Callable[[], object], what: str = "") -> None:
        """Wait until true() is."""
        end = time.monotonic() + DEADLINE
        while not true():
            here = f"{what or true} not in:\n{self.said()}--- stderr\n{self.errors()}"
            assert self.process.poll() is None or true(), f"it has ended; {here}"
            assert time.monotonic() < end, here
            time.sleep(0.02)

    def send(self, number: int, to: int | None = None) -> None:
        """Send a signal to its first process, or to process `to`."""
        os.kill(self.pid if to is None else to, number)

    def ours(self) -> list[int]:
        """Return the pids of our own processes: monitors, and what watches from outside."""
        return [pid for pid in marked(self.folder) if pid != self.pid and is_ours(pid)]


class Beside:
    """Runs programs in both ways, in a folder of the test's."""

    def __init__(self) -> None:
        # Not pytest's: its long name would not do for a socket. Not below /tmp: a program has one
        # of its own.
        self.root = Path(tempfile.mkdtemp(prefix="beside-", dir="/var/tmp"))
        self.root.chmod(0o755)  # for programs of other users

    def __call__(self, script: str, **how: Any) -> Both:
        """Run a shell's `script` in both ways. `how` is for Program.

        In it "$RUN " becomes nothing, or `hangbisect run WATCH -- `; $PYTHON is this Python,
        $PROGRAMS the folder of programs. Its folder holds what prepare(folder) puts there.
        `meanwhile` is called while it runs, and its first process is what `script` begins with or
        becomes by exec. `before` are words in front of the shell, which is root's, or `user`'s.
        `may_stay` is a pattern of what counts as nothing where it is left.
        """
        program, root = Program(script, **how), self._folder()
        if not can_mount():  # both have the same folder
            plain = self._run(program, root, None)
            return Both(plain, self._run(program, root, lambda: plain.left))
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(self._run, program, root, None)
            watched = self._run(program, root, lambda: first.result().left)
        return Both(first.result(), watched)

    def watched(self, script: str, **how: Any) -> Run:
        """Run a script below the watch alone, where there is nothing to compare it with."""
        return self._run(Program(script, **how), self._folder(), lambda: ())

    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="", dir=self.root))
        folder.chmod(0o755)
        return folder

    def _run(
        self, program: Program, root: Path, wanted: Callable[[], tuple[str, ...]] | None
    ) -> Run:
        """Run it below the watch if something is `wanted`: what it may leave, as plainly."""
        is_watched, user = wanted is not None, program.user
        # Names of one length: a variable has them.
        kept = root / ("watched" if is_watched else "plainly")
        # The same path for both: what a program prints of it must be the same.
        shown = root / "now"
        folder = kept if can_mount() else shown
        shown.mkdir(exist_ok=True)
        _make(folder, user)
        if program.prepare is not None:
            program.prepare(folder)
        text = self._text(program.script, shown, program.watch if is_watched else None, user)
        words = [*_own_places(folder, shown), *program.before, *as_user(user), "bash", "-c", text]
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                words,
                cwd=folder / "cwd",
                env={**_environ(folder, shown, user), **program.environ},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        try:
            if program.meanwhile is not None:
                program.meanwhile(Started(process, folder, is_watched))
            status = process.wait(DEADLINE)
            left = _left(folder, program.may_stay, wanted)
        finally:
            _end(process, folder)
        if folder != kept:
            folder.rename(kept)
        out_text, err_text = ((kept / name).read_text(errors="replace") for name in ("out", "err"))
        return Run(status if status >= 0 else 128 - status, out_text, err_text, left, kept)

    def _text(
        self, script: str, folder: Path, watch: Sequence[str] | None, user: int | None
    ) -> str:
        python, programs, ours = sys.executable, PROGRAMS, [str(HANGBISECT)]
        if user is not None:
            python, programs = others_python(), for_others() / "programs"
            ours = [python, str(for_others() / "hangbisect")]
        words = " ".join((*ours, "run", "--run-dir", str(folder / "run"), *(watch or ()), "-- "))
        text = script.replace("$RUN ", words if watch is not None else "")
        text = text.replace("$HANGBISECT", " ".join(ours))
        return text.replace("$PYTHON", python).replace("$PROGRAMS", str(programs))

    def end(self) -> None:
        """Remove all folders."""
        shutil.rmtree(self.root, ignore_errors=True)


_FOLDERS = {"cwd": 0o777, "tmp": 0o1777, "shm": 0o1777, "xdg": 0o700, "home": 0o777}
_FOLDERS["slash_tmp"] = 0o1777  # stands in for /tmp


def _make(folder: Path, user: int | None) -> None:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    for name, mode in _FOLDERS.items():
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    if user is not None:
        os.chown(folder / "xdg", user, user)


def _environ(folder: Path, shown: Path, user: int | None) -> dict[str, str]:
    paths = [FAKE_TORCH]
    if user is not None:
        paths = [for_others() / "programs" / FAKE_TORCH.name, for_others()]
    return {
        **jobs.clean_environ(),
        jobs.MARK: str(folder),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(shown / "tmp"),
        "XDG_RUNTIME_DIR": str(shown / "xdg"),
        "HOME": str(shown / "home"),
        "NO_COLOR": "1",
    }


def as_user(user: int | None) -> list[str]:
    """Return words that make what follows a process of `user`, who has no rights."""
    if user is None:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


@functools.cache
def others_python() -> str:
    """Return a Python that every user may run, new enough for us; skip the test without one."""
    asked = "import sys; raise SystemExit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        # By a shell: setpriv itself may still read what the user may not.
        words = [*as_user(65534), "sh", "-c", 'exec "$@"', "sh", python, "-c", asked]
        if not subprocess.run(words, capture_output=True, check=False).returncode:
            return python
    pytest.skip("no Python of 3.11 and later that other users may run")


def for_others() -> Path:
    """Return a folder that every user may read: our package, what it needs, and the programs.

    Neither a checkout nor its environment may be open to other users.
    """
    with _FOR_OTHERS:
        return _make_for_others()


_FOR_OTHERS = threading.Lock()


@functools.cache
def _make_for_others() -> Path:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix=Path(_OF_OTHERS).name))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, folder / "hangbisect", ignore=no_caches)
    shutil.copytree(PROGRAMS, folder / "programs", ignore=no_caches)
    for distribution in _needed("hangbisect", set()):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / file)
    # Once, and not by each process: they may write nothing here.
    compiling = [others_python(), "-m", "compileall", "-q", str(folder / "hangbisect")]
    subprocess.run(compiling, check=True, stdout=subprocess.DEVNULL)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    return folder


def _needed(name: str, seen: set[str]) -> Iterator[metadata.Distribution]:
    """Yield the distributions that `name` needs, without those of its extras."""
    for line in metadata.requires(name) or ():
        needed = Requirement(line)
        if needed.name in seen or (needed.marker and not needed.marker.evaluate({"extra": ""})):
            continue
        seen.add(needed.name)
        yield metadata.distribution(needed.name)
        yield from _needed(needed.name, seen)


@functools.cache
def can_mount() -> bool:
    """Return whether we may give a program a mount namespace of its own."""
    words = ("unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "t", "/mnt")
    return not subprocess.run(words, capture_output=True, check=False).returncode


def _own_places(folder: Path, shown: Path) -> list[str]:
    """Return words that give a program a /dev/shm and a /tmp to which nobody else writes, and its
    `folder` at the path `shown`.
    """
    if not can_mount():
        return []
    bind = f"mount --bind {folder / 'shm'} /dev/shm && mount --bind {folder} {shown} && "
    if not any(path.startswith("/tmp/") for path in (str(PROGRAMS), str(PACKAGE), sys.prefix)):
        bind += f"mount --bind {folder / 'slash_tmp'} /tmp && "
    bind += f'exec env -C {shown}/cwd PWD={shown}/cwd "$@"'
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", bind, "sh"]


def marked(folder: Path) -> Iterator[int]:
    """Yield the pids of the living processes of the program that runs in `folder`."""
    mark = f"{jobs.MARK}={folder}".encode()
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                yield int(name)


def is_ours(pid: int) -> bool:
    """Return whether a process runs code of hangbisect's as its program."""
    names = ("hangbisect", "py-spy")
    return any(
        word.startswith((str(PACKAGE), _OF_OTHERS)) or word.rpartition("/")[2] in names
        for word in command(pid)[:6]
    )


def command(pid: int) -> list[str]:
    """Return the words of a process's command line, [] for one that is gone."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return [word.decode(errors="replace") for word in words]
    return []


def _left(
    folder: Path, may_stay: str, wanted: Callable[[], tuple[str, ...]] | None
) -> tuple[str, ...]:
    """Return what a program has left: after a moment, or as soon as it is what is `wanted`."""
    if wanted is None:
        time.sleep(SETTLED)
        return _left_now(folder, may_stay)
    expected = wanted()
    end = time.monotonic() + GONE
    while (left := _left_now(folder, may_stay)) != expected and time.monotonic() < end:
        time.sleep(0.05)
    return left


def _left_now(folder: Path, may_stay: str) -> tuple[str, ...]:
    left = sorted(filter(None, (" ".join(command(pid)) for pid in marked(folder))))
    for place in _FOLDERS:
        left += sorted(f"{place}/{entry.name}" for entry in (folder / place).iterdir())
    # Where run folders are kept that were not named, or could not be made where they were.
    ours = r"^cwd/runs$|/hangbisect-runs-\d+$" + (f"|{may_stay}" if may_stay else "")
    return tuple(name for name in left if not re.search(ours, name))


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + DEADLINE
    while (pids := [*marked(folder)]) and time.monotonic() < end:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.poll()
        time.sleep(0.02)
    process.kill()
    process.wait(DEADLINE)


def _without_ours(text: str) -> Iterator[str]:
    in_verdict = False
    for line in text.splitlines():
        in_verdict = bool(_VERDICT.match(line) or (in_verdict and _OF_A_VERDICT.match(line)))
        if not (in_verdict or _STAMP.match(line) or _SENTENCE.match(line)):
            yield line
