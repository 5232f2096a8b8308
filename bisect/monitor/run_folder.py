"""The run folder: the only object that knows its paths and writes in it.

Everything is written on the node's own disk first and copied by a helper with a time limit, for
the run folder may lie on the very file system that hangs. A run holds a lock in its folder for as
long as it lives: two never write in one.

The node's own disk may be a /dev/shm of 64 MiB, or be removed while the job runs (logind removes
XDG_RUNTIME_DIR at logout): then the files go on in another folder, and in memory where there is
none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.deadline import call_with_limit
from ..base.masking import mask_lines, mask_values
from ..base.proc import Stat, read_stat
from ..rank.our_folders import bases, make_new_in
from . import copy_run

EVENTS_FILE = "events.jsonl"
STAGE_PREFIX = "hangbisect-files-"
_MOST_IN_MEMORY = 1 << 26  # bytes of events


class StagedFiles:
    """Whole files, and events.jsonl, the one that is appended to. Nothing here raises."""

    def __init__(self, folder: Path | None) -> None:
        """Make `folder`, or another one if it cannot be; without one, a new folder."""
        self.folder: Path | None = folder  # None: there is none, they are in memory alone
        self.news: list[str] = []  # sentences on what had to be done, not said yet
        self._made: list[Path] = []  # folders that we had to make
        self._failed: set[str] = set()  # bases where nothing can be written
        self._texts: dict[str, str] = {}  # what has no copy in the run folder yet
        self._events: int | None = None
        self._remembered = b""  # events, while there is no folder
        self.is_closed = False
        try:
            if folder is not None:
                folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            self._move(error)
        if folder is None:
            self._move(None)

    def write(self, name: str, text: str) -> None:
        """Write a whole file."""
        if self.is_closed:
            return
        self._texts[name] = text
        if self.folder is not None:
            try:
                _write_file(self.folder / name, text)
            except OSError as error:
                self._move(error)

    def note(self, event: dict[str, Any]) -> None:
        """Append an event to events.jsonl."""
        if self.is_closed:
            return
        event = {"wall": round(time.time(), 6), **event}
        line = json.dumps(event, default=str).encode(errors="replace") + b"\n"
        if self.folder is not None:
            try:
                self._append(line)
                return
            except OSError as error:
                self._move(error, line)
                return
        self._remember(line)

    def events(self) -> list[dict[str, Any]]:
        """Return what events.jsonl holds; a line cut short by a sudden end is left out."""
        data = self._remembered
        if self.folder is not None:
            try:
                data = (self.folder / EVENTS_FILE).read_bytes()
            except OSError:
                return []
        events = []
        for line in data.splitlines():
            with contextlib.suppress(ValueError):
                events.append(json.loads(line))
        return events

    def check(self) -> dict[str, str]:
        """See that all that was written is there, else write it elsewhere. Return the texts that
        have no copy yet: for forget().
        """
        if self.folder is not None and not self.is_closed:
            try:
                self._check_files()
            except OSError as error:
                self._move(error)
        return dict(self._texts)

    def in_memory(self) -> dict[str, str] | None:
        """Return all files that are in memory alone, None if there is a folder."""
        if self.folder is not None:
            return None
        events = (
            {EVENTS_FILE: self._remembered.decode(errors="replace")} if self._remembered else {}
        )
        return {**self._texts, **events}

    def forget(self, copied: dict[str, str]) -> None:
        """Drop the texts that now have a copy in the run folder."""
        for name, text in copied.items():
            if self._texts.get(name) is text:
                del self._texts[name]

    def close(self, remove: bool) -> None:
        """Write nothing any more, and `remove` the folder that we had to make; those that could not
        be written any more, and hold nothing that is not elsewhere, are removed in any case.
        """
        self.is_closed = True
        if self._events is not None:
            os.close(self._events)
            self._events = None
        for folder in self._made:
            if remove or folder != self.folder:
                self._remove(folder)

    # ---- where they are ------------------------------------------------------------------------

    def _append(self, line: bytes) -> None:
        assert self.folder is not None
        if self._events is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._events = os.open(self.folder / EVENTS_FILE, flags, 0o600)
        if not os.fstat(self._events).st_nlink:
            raise FileNotFoundError(2, "it was removed", str(self.folder))
        if os.write(self._events, line) != len(line):
            raise OSError(28, os.strerror(28), str(self.folder / EVENTS_FILE))

    def _check_files(self) -> None:
        """Raise OSError unless all files that have no copy are there."""
        assert self.folder is not None
        os.stat(self.folder)
        for name in self._texts:
            os.stat(self.folder / name)
        if self._events is not None and not os.fstat(self._events).st_nlink:
            raise FileNotFoundError(2, "it was removed", str(self.folder / EVENTS_FILE))

    def _move(self, why: OSError | None, line: bytes = b"") -> None:
        """Go on in another folder: with the texts that have no copy, all events and `line`."""
        before, self.folder = self.folder, None
        events = self._saved_events() + line
        # The folder that we leave may be on any of them: where it is full, the others are tried.
        for base in bases():
            if base in self._failed:
                continue
            try:
                self._use_folder(Path(make_new_in(base, STAGE_PREFIX)), events)
                break
            except OSError:
                self._failed.add(base)
        else:
            self._remember(events)
        if why is not None:
            where = self.folder or "memory, for no folder for temporary files can be written"
            self.news.append(
                f"{before} cannot be written ({why.strerror or why}): the run's files are kept in "
                f"{where}"
            )

    def _use_folder(self, folder: Path, events: bytes) -> None:
        self._made.append(folder)
        try:
            for name, text in self._texts.items():
                _write_file(folder / name, text)
            self.folder = folder
            if events:
                self._append(events)
        except OSError:
            self.folder = None
            self._close_events()
            self._made.remove(folder)
            self._remove(folder)
            raise

    def _remove(self, folder: Path) -> None:
        """Remove a folder that we made. rmtree opens it: without a descriptor it leaves it there,
        but then nothing could be written in it, and what there can be is known.
        """
        shutil.rmtree(folder, ignore_errors=True)
        for path in (*(folder / name for name in self._texts), folder / EVENTS_FILE):
            with contextlib.suppress(OSError):
                path.unlink()
            with contextlib.suppress(OSError):
                path.parent.rmdir()

    def _saved_events(self) -> bytes:
        """Return the events so far: of a file that was removed, too, for we have it open."""
        data = b""
        if self._events is not None:
            with contextlib.suppress(OSError):
                while block := os.pread(self._events, 1 << 20, len(data)):
                    data += block
        self._close_events()
        return data[: data.rfind(b"\n") + 1]

    def _close_events(self) -> None:
        if self._events is not None:
            with contextlib.suppress(OSError):
                os.close(self._events)
            self._events = None

    def _remember(self, data: bytes) -> None:
        if len(self._remembered) + len(data) <= _MOST_IN_MEMORY:
            self._remembered += data


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    call_with_limit = path.with_name(f".{path.name}.new")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(call_with_limit, flags, 0o600), "wb") as file:
            file.write(text.encode(errors="replace"))
        call_with_limit.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            call_with_limit.unlink()
        raise


COPY_LIMIT = 2.0  # seconds
BUSY_LIMIT = 15.0  # the same for a helper that makes progress, if slowly: the machine is busy
MOMENT = 0.5
KILL_LIMIT = 0.2
_PAUSE = 0.005
_HELPER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("copy_run.py")))

Request = dict[str, Any]  # of copy_run.publish()


PATH_FILE, TOLD_FILE = "run-path", "run-path-told"  # beside the stage, "run"


def read_run_path(stage: Path) -> tuple[Path | None, bool]:
    """Return where the files of a monitor's stage were to go, None where that is not known, and
    whether the monitor has said itself that they could not.
    """
    prefix = stage.name.removesuffix("run")
    for name in (PATH_FILE, TOLD_FILE):
        with contextlib.suppress(OSError):
            return Path((stage.parent / f"{prefix}{name}").read_text()), name == TOLD_FILE
    return None, False


def name_run(mark: str) -> str:
    """Return the name by which all processes of a run on this node know it, from its mark."""
    return f"{os.getuid()} {os.uname().nodename} {mark}"


class RunFolder:
    """A run's files: set aside and renamed, in `stage` first, then in `path`. Nothing raises."""

    def __init__(
        self,
        stage: Path | None,
        base: Path,
        inside: Sequence[str] = (),
        run: str | None = None,
        adds: bool = False,
        since: float | None = None,
    ) -> None:
        """Make `stage` (None: a new folder, which close() removes); the run folder, what is
        `inside` `base`, is made by the first publish().

        Whoever says the same `run` (see name_run) shares the folder; another run takes one beside
        it. By default it is one of its own. One that `adds` keeps what its run wrote before. A
        verdict that was written after `since` (seconds of the wall clock; now) is of a run beside
        this one.
        """
        self.path = base.joinpath(*inside)
        self.trouble = ""  # why the last publish() failed
        self.is_published = False
        self._staged = StagedFiles(stage)
        self._base, self._inside = base, tuple(inside)
        self._run = run or name_run(f"{os.getpid()}-{time.monotonic_ns()}")
        self._adds = adds
        self._since = time.time() if since is None else since
        self._lock: int | None = None  # holds the lock of `path`
        self._is_taken = False
        self._told_loss = ""
        self._is_temporary = False  # a folder that we have chosen
        # A helper that gave no answer. In a file system it cannot even be killed: no second one.
        self._stuck: subprocess.Popen[bytes] | None = None

    @property
    def stage(self) -> Path | None:
        """Where the files are on the node's own disk, None if nothing can be written there."""
        return self._staged.folder

    @property
    def where(self) -> Path | None:
        """Where the files are to be found: all that was written last. None: nowhere."""
        return self.path if self.is_published else self.stage

    def write(self, name: str, text: str) -> None:
        """Write a whole file, without secrets."""
        self._write(name, mask_lines(text))

    def write_secret(self, name: str, text: str) -> None:
        """Write a whole file as it is: like all of these, nobody else may read it."""
        self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        self.is_published = False
        self._staged.write(name, text)

    def write_json(self, name: str, value: Any) -> None:
        """Write a whole JSON file that a person can read, its texts without secrets."""
        value = mask_values(value)
        self._write(name, json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")

    def note(self, event: dict[str, Any]) -> None:
        """Append an event to events.jsonl, the one file that is appended to, without secrets."""
        self._staged.note(mask_values(event))

    def events(self) -> list[dict[str, Any]]:
        """Return what events.jsonl holds; a line cut short by a sudden end is left out."""
        return self._staged.events()

    def take_news(self) -> list[str]:
        """Return what has to be said of the files, a sentence each; each is returned once."""
        news, self._staged.news = self._staged.news, []
        return news

    def losses(self) -> list[str]:
        """Return a sentence if what was written last is not in the run folder; the same once."""
        if self.is_published:
            return []
        where = "they are lost" if self.where is None else f"files are in {self.where}"
        sentence = f"The run folder could not be written: {self.trouble}; {where}"
        is_new, self._told_loss = sentence != self._told_loss, sentence
        return [sentence] if is_new else []

    async def publish(
        self, limit: float = COPY_LIMIT, first: bool = False, last: bool = False
    ) -> bool:
        """Copy what is new to the run folder; the `first` time, remove an earlier run's files from
        it, for they would be taken for this one's. Return whether all that was written is there;
        if not, `trouble` says why: it took longer than `limit` seconds (BUSY_LIMIT on a machine
        that is only busy), or could not be done.

        If another run writes there, a folder beside it is used: `path` is another one then, and
        take_news() says so. What did not answer is not tried again but for the `last` time, when
        no rank waits.
        """
        self.is_published = False
        if self._stuck is not None and not (last and self._stuck.poll() is not None):
            return False
        written = self._staged.check()
        wanted = self.path
        done = await self._ask_to_copy(first, limit)
        if done is None:
            self.trouble = f"{self.path} does not answer within {limit:.0f} s"
            return False
        self.trouble = done["trouble"]
        if not self.trouble:
            self._is_taken = True
            self.path = Path(done["folder"])
            if self.path != wanted:
                self._staged.news.append(f"Another run writes in {wanted}: using {self.path}")
            self._staged.forget(written)
            self.is_published = True
        return self.is_published

    def move(self, path: Path) -> None:
        """Publish to another folder from now on."""
        self.path, self.trouble, self._stuck = path, "", None
        self._base, self._inside, self._is_taken = path, (), False
        self._is_temporary = True

    def follow(self, before: Path, now: Path) -> None:
        """The folder `before`, which has our stage in it, was renamed."""
        if self.stage is not None and self.stage.parent == before:
            self._staged.folder = now / self.stage.name

    def close(self) -> None:
        """Write nothing any more. What has its copy in the run folder is removed elsewhere, but for
        the stage that was given. The lock is kept as long as this process lives.
        """
        self._staged.close(remove=self.is_published)

    # ---- the helper ----------------------------------------------------------------------------

    async def _ask_to_copy(self, first: bool, limit: float) -> dict[str, str] | None:
        """Have the helper copy; return what it says, None if it does not answer in time."""
        asked: Request = {
            "stage": None if self.stage is None else str(self.stage),
            "base": str(self.path if self._is_taken else self._base),
            "inside": [] if self._is_taken else self._inside,
            "run": "" if self._is_taken else self._run,
            "clear": first,
            "adds": self._adds,
            "since": self._since,
            "is_temporary": self._is_temporary,
            "socket": None,
        }
        files = self._staged.in_memory()
        try:
            return await self._ask_helper(asked, files, limit)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
        try:  # no process can be started, or our Python is gone
            return await call_with_limit(copy_run.publish, asked, files, limit=limit, key=self.path)
        except TimeoutError:
            return None
        except (OSError, RuntimeError):
            return {"trouble": f"no process and no thread can be started that copies ({why})"}

    async def _ask_helper(
        self, asked: Request, files: dict[str, str] | None, limit: float
    ) -> dict[str, str] | None:
        """Return the helper's answer, None if it took too long.

        Raises OSError if it cannot be started, ValueError if it ends without an answer.
        """
        with contextlib.ExitStack() as opened:
            texts: Any = subprocess.DEVNULL
            if files is not None:
                texts = opened.enter_context(open(os.memfd_create("files"), "w+b"))
                texts.write(json.dumps(files).encode())
                texts.seek(0)
            theirs: tuple[int, ...] = ()
            if not self._is_taken:
                our_end, their_end = socket.socketpair()
                opened.enter_context(our_end)
                opened.enter_context(their_end)
                theirs = (their_end.fileno(),)
            helper = subprocess.Popen(
                [*_HELPER, json.dumps({**asked, "socket": theirs[0] if theirs else None})],
                stdin=texts,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=theirs,
            )
            said = await _read_helper_output(helper, limit)
            if said is None:
                self._stuck = helper
                return None
            if theirs and self._lock is None:
                self._lock = _receive_descriptor(our_end)
        done: dict[str, str] = json.loads(said)
        return done


def _receive_descriptor(way: socket.socket) -> int | None:
    """Return the descriptor that was sent, if any."""
    # Not by flags: recv_fds() of Python 3.11 takes some, and leaves them out.
    way.setblocking(False)
    with contextlib.suppress(OSError):
        _, descriptors, _, _ = socket.recv_fds(way, 16, 1)
        for descriptor in descriptors[:1]:
            os.set_inheritable(descriptor, False)
            return descriptor
    return None


async def _read_helper_output(helper: subprocess.Popen[bytes], limit: float) -> bytes | None:
    """Return what a helper printed, None if it neither ended within `limit` seconds nor got on:
    then it is killed.
    """
    assert helper.stdout is not None
    now = time.monotonic()
    until, at_most, before = now + limit, now + BUSY_LIMIT, None
    while helper.poll() is None:
        now = time.monotonic()
        if now > until - min(MOMENT, limit / 2) and before is None:
            before = read_stat(helper.pid)
        if now > until:
            after = read_stat(helper.pid)
            if now > at_most or not _is_progressing(before, after):
                await _kill(helper)
                return None
            until, before = now + MOMENT, after
        await asyncio.sleep(_PAUSE)
    with helper.stdout:
        return helper.stdout.read()  # a short line: it has ended, and the pipe held it


async def _kill(helper: subprocess.Popen[bytes]) -> None:
    assert helper.stdout is not None
    helper.stdout.close()
    with contextlib.suppress(OSError):
        helper.kill()
    until = time.monotonic() + KILL_LIMIT
    while helper.poll() is None and time.monotonic() < until:  # in the kernel it stays
        await asyncio.sleep(_PAUSE)


def _is_progressing(before: Stat | None, now: Stat | None) -> bool:
    if before is None or now is None:
        return False
    return now.state == "R" or now.ticks > before.ticks
