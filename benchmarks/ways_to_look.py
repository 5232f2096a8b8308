"""How people look at a job that hangs today, and hangbisect; for what_people_use.py.

Each way takes the name of a kind of plain_hangs.py and the seconds that it has until it may speak,
runs the job, and returns what was said of it.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import plain_hangs
from jobs import Running, clean_environ, folder, start
from plain_hangs import KINDS, Kind

RANKS = 4
START = 90.0  # seconds for a job to begin to hang
AFTER = 30.0  # seconds beyond its patience for a way to say something
PAGE = 75.0  # for a page of the debug server, which gives each rank 60 s

_FAILED = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")
_SEE_RANK_0 = re.compile(r"Please check rank 0 logs for faulty rank")
_KEY = re.compile(r"wait timeout after \d+ms, keys: (\S+)")
_TIMED_OUT = re.compile(r"Timed out waiting \d+ms for (?:send|recv|\w+) operation to complete")
_CLOSED = re.compile(r"Connection closed by peer|Connection reset by peer|Broken pipe")
_SECTION = re.compile(r"<h2>Rank (\d+): [^<]*</h2>")


@dataclass(frozen=True)
class Said:
    """What a way had to say. `ranks` None: it named nobody. `shown`: stacks of the culprits."""

    way: str
    kind: str
    ranks: tuple[int, ...] | None
    shown: bool | None
    seconds: float | None
    words: str

    def named(self, kind: Kind) -> str:
        """Return "yes", "no" or "wrong"."""
        if self.ranks is None:
            return "no"
        return "yes" if self.ranks == kind.ranks else "wrong"


@dataclass
class Job:
    """A job under way, and what its ranks noted of their hanging."""

    running: Running
    stamps: Path
    kind: Kind

    def began(self) -> float | None:
        """Wait until all culprits hang; return when (the clock's time), None if they do not."""
        wanted = self.kind.ranks
        end = time.monotonic() + START
        while time.monotonic() < end:
            times = [self._stamp(rank) for rank in wanted]
            if all(times):
                return max(times)
            if self.running.process.poll() is not None:
                return None
            time.sleep(0.05)
        return None

    def _stamp(self, rank: int) -> float:
        with suppress(OSError, ValueError):
            return float((self.stamps / str(rank)).read_text())
        return 0.0

    def first(self, pattern: re.Pattern[str], until: float) -> re.Match[str] | None:
        """Return the first such words that it prints, None if there are none by `until`."""
        while True:
            ended = self.running.process.poll() is not None
            found = pattern.search(self.running.said())
            if found or ended or time.time() > until:
                return found
            time.sleep(0.1)


@contextmanager
def outside(here: Path) -> Iterator[dict[str, str]]:
    """A silent server, a FIFO and a folder for stamps; yield the environment that tells of them."""
    fifo, stamps = here / "fifo", here / "stamps"
    os.mkfifo(fifo)
    stamps.mkdir()
    kept: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    kept.append(server.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        port = server.getsockname()[1]
        yield {
            plain_hangs.MODULE_FIFO: str(fifo),
            plain_hangs.SILENT_PORT: str(port),
            "STAMPS": str(stamps),
            "WANDB_BASE_URL": f"http://127.0.0.1:{port}",
            "WANDB_API_KEY": "0" * 40,
            "WANDB_DIR": str(here),
            "OMP_NUM_THREADS": "1",
        }
        server.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()


@contextmanager
def plain(name: str, way: str, patience: float, port: int = 0) -> Iterator[Job]:
    """The plain script under torchrun, ended at the end of the block."""
    with folder() as here, outside(here) as environ:
        scripts = Path(sys.executable).parent
        torchrun = [str(scripts / "torchrun"), "--standalone"]
        command = [*torchrun, f"--nproc_per_node={RANKS}", plain_hangs.__file__]
        running = Running(
            [*command, name, way, str(patience)],
            here,
            {
                **clean_environ(),
                **environ,
                "DEBUG_PORT": str(port),
                "PATH": f"{scripts}:{os.environ['PATH']}",  # the debug server looks for py-spy
            },
        )
        try:
            yield Job(running, here / "stamps", KINDS[name])
        finally:
            running.end(0)


# ---- the ways -------------------------------------------------------------------------------


def monitored_barrier(name: str, patience: float) -> list[Said]:
    """Read what the barrier says on rank 0, and where it sends one to look."""
    with plain(name, "monitored barrier", patience) as job:
        began = job.began()
        if began is None:
            return [_did_not_begin("monitored barrier", name, job)]
        until = began + patience + AFTER
        any_words = re.compile("|".join(p.pattern for p in (_FAILED, _SEE_RANK_0, _KEY)))
        found = job.first(any_words, until)
        seconds = time.time() - began
        time.sleep(1)  # the other ranks say theirs
        text = job.running.said()
    failed = _FAILED.search(text)
    if failed:
        ranks = tuple(sorted(int(n) for n in re.findall(r"\d+", failed[1])))
        return [Said("monitored barrier", name, ranks, None, seconds, failed[0])]
    if found is None:
        return [Said("monitored barrier", name, None, None, None, "nothing")]
    return [_of_library("monitored barrier", name, text, seconds)]


def library(name: str, patience: float) -> list[Said]:
    """Read the library's own message when its time limit has passed."""
    with plain(name, "", patience) as job:
        began = job.began()
        if began is None:
            return [_did_not_begin("library", name, job)]
        until = began + patience + AFTER
        any_words = re.compile("|".join(p.pattern for p in (_KEY, _TIMED_OUT, _CLOSED)))
        found = job.first(any_words, until)
        seconds = time.time() - began
        time.sleep(1)
        text = job.running.said()
    if found is None:
        return [Said("library", name, None, None, None, "nothing")]
    return [_of_library("library", name, text, seconds)]


def _of_library(way: str, name: str, text: str, seconds: float) -> Said:
    key = _KEY.search(text)
    if key:
        number = re.search(r"(\d+)$", key[1])
        ranks = (int(number[1]),) if number else None
        return Said(way, name, ranks, None, seconds, key[0])
    if _SEE_RANK_0.search(text):
        return Said(way, name, (0,), None, seconds, "Please check rank 0 logs")
    words = _TIMED_OUT.search(text) or _CLOSED.search(text)
    return Said(way, name, None, None, seconds, words[0] if words else "nothing")


def debug_server(name: str, patience: float) -> list[Said]:
    """Ask for the two pages with stacks, both at once."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with plain(name, "debug server", patience, port) as job:
        began = job.began()
        if began is None:
            return [_did_not_begin(way, name, job) for way in ("/stacks", "/pyspy_dump")]
        time.sleep(max(0.0, began + patience - time.time()))
        pages = {way: _Page(f"http://127.0.0.1:{port}{way}") for way in ("/stacks", "/pyspy_dump")}
        for page in pages.values():
            page.join(PAGE)
        return [_of_page(way, name, page, began) for way, page in pages.items()]


class _Page(threading.Thread):
    """A page that is being fetched."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.text, self.error = url, "", "no answer"
        self.at: float | None = None
        self.start()

    def run(self) -> None:
        try:
            with urllib.request.urlopen(self.url, timeout=PAGE) as answer:
                self.text = answer.read().decode(errors="replace")
            self.error = ""
        except OSError as error:
            self.error = f"{type(error).__name__}: {error}"
        self.at = time.time()


def _of_page(way: str, name: str, page: _Page, began: float) -> Said:
    if not page.text or page.at is None:
        return Said(way, name, None, False, None, page.error)
    parts = _SECTION.split(page.text)
    by_rank = dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
    call = KINDS[name].hang.__name__
    shown = all(call in by_rank.get(rank, "") for rank in KINDS[name].ranks)
    words = f"stacks of {sum('File' in p or '.py' in p for p in by_rank.values())} ranks"
    return Said(way, name, None, shown, page.at - began, words)


def hangbisect(name: str, patience: float) -> list[Said]:
    """Run the pipeline with the same functions in it, and read its verdict."""
    with folder() as here, outside(here) as environ:
        uses = [f"{step}=plain_hangs:{function}" for step, function in plain_hangs.USES.items()]
        running = start(
            ["--fast-dev-run", "3", "--stall", str(patience)]
            + ([] if KINDS[name].place == "logger" else ["--wandb", "off"])
            + [word for use in uses for word in ("--use", use)],
            here,
            ranks=RANKS,
            environ={
                **environ,
                "PLAIN_KIND": name,
                "PYTHONPATH": str(Path(plain_hangs.__file__).parent),
            },
        )
        job = Job(running, here / "stamps", KINDS[name])
        began = job.began()
        verdict = running.run_dir / "verdict.json"
        until = time.monotonic() + patience + AFTER + START
        while not verdict.exists() and time.monotonic() < until:
            time.sleep(0.05)
        seconds = verdict.stat().st_mtime - began if began and verdict.exists() else None
        ended = running.end(20)
    if began is None or not ended.verdict:
        return [Said("hangbisect", name, None, None, None, "no verdict")]
    ranks = tuple(sorted(ended.verdict["ranks"]["culprit"]))
    wait = ended.verdict["waits_for"] or {}
    words = f"{ended.verdict['call']} waits for {wait.get('kind')} {wait.get('detail', '')}"
    shown = ended.verdict["outcome"] == "hang"
    return [Said("hangbisect", name, ranks or None, shown, seconds, words)]


def _did_not_begin(way: str, name: str, job: Job) -> Said:
    raised = re.findall(r"^(?:\w+Error|\w+Exception): .*", job.running.said(), re.MULTILINE)
    why = f": {raised[0]}" if raised else ""
    return Said(way, name, None, None, None, f"the job did not begin to hang{why}")


WAYS: dict[str, Callable[[str, float], list[Said]]] = {
    "monitored barrier": monitored_barrier,
    "library": library,
    "debug server": debug_server,
    "hangbisect": hangbisect,
}
