"""Whether the calls in which ranks of each library wait are seen, by the oldest and newest version.

    python benchmarks/canaries.py make FOLDER [LIBRARY ...]    an environment of the oldest versions
    python benchmarks/canaries.py [NAME ...]                   with the installed versions
    python benchmarks/canaries.py --python FOLDER/bin/python [NAME ...]

Two gloo ranks; for each meeting, one that begins with a NAME (all), a rank enters it and the other
one reads its stdin, has a lock, or stands still in code of the job that the library has called.
`hangbisect attach` looks at both. It is seen if the rank that waits is not blamed, the other one
is, and the wait is told by the words of canary_table.py. What a rank waits for by itself (a server,
a worker) is seen if that rank is blamed, with the call. Aim: all of them. At the end a table of
library, version, meetings and seen; and seen by the same looks where no native frame can be read.

`make` takes the lowest version of each library from pyproject.toml, or of the named ones: the
Trainer of transformers 4.56 calls what accelerate 1.0 does not have. torch is shared with the
Python that runs this: another one would be gigabytes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jobs
import psutil
from canary_table import CANARIES, Canary
from hangbisect.attach.answer import add_time
from hangbisect.attach.job_search import find_jobs
from hangbisect.attach.judgement import judge_nodes
from hangbisect.attach.node_facts import NodeFacts, look_at_job
from hangbisect.base.json_codec import to_json
from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import RankFacts
from silent_server import SilentServer

PROGRAM = Path(__file__).with_name("canary_rank.py")
ANSWERS = 400.0  # seconds in which a rank has prepared a meeting: libraries are imported
SETTLES = 60.0  # seconds in which both have come to where they stay
LEAVES = 30.0  # seconds in which it has left one once nothing blocks it
RESTS = 0.03  # seconds of a processor in a second: less is rest
MORE_LOOKS = 5  # where something moved, a library that is imported
LOOK_LIMIT = 90.0  # seconds for one attach
LIBRARIES = ("accelerate", "deepspeed", "lightning", "pytorch-lightning", "transformers", "wandb")


@dataclass(frozen=True)
class Seen:
    """What `attach` said of one."""

    canary: Canary
    wrong: tuple[str, ...]  # in words, what is not right
    verdict: dict[str, Any] = field(default_factory=dict)
    wrong_by_python: tuple[str, ...] = ()  # the same, by the same looks without native frames


class Rank:
    """A rank of the job: told by lines, answers by lines."""

    def __init__(self, number: int, python: str, folder: Path, environ: dict[str, str]) -> None:
        """Start it."""
        self.number = number
        self._log = open(folder / f"rank{number}.log", "ab")  # noqa: SIM115 open as long as the rank
        self.process = subprocess.Popen(
            [python, str(PROGRAM)],
            env={**environ, "RANK": str(number), "LOCAL_RANK": str(number)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
        )

    def tell(self, text: str) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{text}\n".encode())
            self.process.stdin.flush()

    def answer(self, limit: float) -> str:
        """Return its next line, "" if none comes in `limit` seconds."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit):
                return ""
        return os.read(self.process.stdout.fileno(), 1 << 16).decode().strip()

    def end(self) -> None:
        """End it, with all that it has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Pair:
    """Two ranks, in a folder of their own."""

    def __init__(self, python: str, folder: Path) -> None:
        """Start both; they come to the first canary together."""
        self.folder = folder
        self.server = SilentServer()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        (folder / "fifo").unlink(missing_ok=True)
        os.mkfifo(folder / "fifo")
        environ = {
            **jobs.clean_environ(),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "CANARY_FOLDER": str(folder),
            "HF_HOME": str(folder / "hub"),
            "HF_ENDPOINT": self.server.url,
            "HF_HUB_ETAG_TIMEOUT": "600",
            "HF_HUB_DOWNLOAD_TIMEOUT": "600",
            "WANDB_BASE_URL": self.server.url,
            "WANDB_API_KEY": "0" * 40,
            "WANDB_DIR": str(folder),
            "WANDB_CONFIG_DIR": str(folder),  # login() writes its server there
            "WANDB_X_SERVICE_WAIT": "600",
            "WANDB__SERVICE_WAIT": "600",  # as older ones call it
            "TRANSFORMERS_VERBOSITY": "error",
            "ACCELERATE_USE_CPU": "true",
            "PYTHONWARNINGS": "ignore",
        }
        self.ranks = [Rank(number, python, folder, environ) for number in (0, 1)]

    def ready(self, name: str) -> list[str]:
        """Return why a meeting could not be prepared, [] if it is."""
        for rank in self.ranks:
            rank.tell(f"ready {name}")
        answers = [rank.answer(ANSWERS) for rank in self.ranks]
        return [answer or "no answer" for answer in answers if answer != "ready"]

    def enter(self, canary: Canary) -> str:
        """Have the rank that is to wait enter, or both where each has its part; return what it
        answers at once, "" if it waits.
        """
        if canary.children == "stopped":
            self._signal_children(signal.SIGSTOP)
        if canary.name == "torch.FileBaton.wait":
            (self.folder / "baton").touch()
        if canary.both:
            self.ranks[1 - canary.waits].tell("go")
            self._settle()
        for rank in self.ranks if canary.alone else [self.ranks[canary.waits]]:
            rank.tell("go")
        if canary.children == "stopped at once":
            self._stop_first_child()
        self._settle()
        entered = self.ranks if canary.both else [self.ranks[canary.waits]]
        return "; ".join(filter(None, (rank.answer(0.1) for rank in entered)))

    def leave(self, canary: Canary) -> bool:
        """Let both go on; return whether they did."""
        self.server.answer(True)
        self._signal_children(signal.SIGCONT)
        (self.folder / "baton").unlink(missing_ok=True)
        if not canary.alone and not canary.both:
            self.ranks[1 - canary.waits].tell("go")
        with contextlib.suppress(OSError):  # nobody reads the FIFO, mostly
            os.close(os.open(self.folder / "fifo", os.O_WRONLY | os.O_NONBLOCK))
        left = [rank.answer(LEAVES) for rank in self.ranks]
        self.server.answer(False)
        return all(one == "done" or (canary.alone and one) for one in left)

    def _settle(self) -> None:
        """Return when neither computes any more, or after `SETTLES` seconds."""
        ranks = [psutil.Process(rank.process.pid) for rank in self.ranks]
        until, before = time.monotonic() + SETTLES, -1.0
        while time.monotonic() < until:
            times = [rank.cpu_times() for rank in ranks]
            spent = sum(one.user + one.system for one in times)
            if spent - before < RESTS and before >= 0:
                return
            before = spent
            time.sleep(1.0)

    def _stop_first_child(self) -> None:
        """Stop the helper process of rank 0 as soon as its program runs."""
        rank = psutil.Process(self.ranks[0].process.pid)
        for _ in range(10000):
            for child in rank.children():
                if child.name() != rank.name():
                    child.send_signal(signal.SIGSTOP)
                    return
            time.sleep(0.001)

    def _signal_children(self, number: int) -> None:
        for child in psutil.Process(self.ranks[0].process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)

    def look(self) -> NodeFacts | None:
        """Return what `attach` sees, None if it sees nothing in time; taken here: the command
        imports as much each time as the ranks.
        """
        return asyncio.run(_look([rank.process.pid for rank in self.ranks]))

    def end(self) -> None:
        """End both."""
        for rank in self.ranks:
            rank.end()


async def _look(pids: list[int]) -> NodeFacts | None:
    try:
        async with asyncio.timeout(LOOK_LIMIT):
            found = await find_jobs(pids)
            return await look_at_job(found.jobs[0], found.processes)
    except TimeoutError:
        return None


def judge_node(node: NodeFacts | None) -> dict[str, Any]:
    """Return the verdict of `attach` on what it saw, {} on nothing."""
    if node is None:
        return {}
    judgement = add_time(judge_nodes([node], [], time.monotonic()), time.monotonic())
    verdict: dict[str, Any] = to_json(judgement.verdict)
    return verdict


def without_native_frames(node: NodeFacts) -> NodeFacts:
    """Return what would have been seen where no native frame can be read."""
    return replace(node, ranks=tuple(_strip_rank(rank) for rank in node.ranks))


def _strip_rank(rank: RankFacts) -> RankFacts:
    children = tuple(tuple(map(_strip_look, looks)) for looks in rank.children)
    return replace(rank, looks=tuple(map(_strip_look, rank.looks)), children=children)


def _strip_look(look: Look) -> Look:
    threads = (
        replace(thread, frames=tuple(frame for frame in thread.frames if not frame.native))
        for thread in look.threads
    )
    return replace(look, threads=tuple(threads))


def judge(canary: Canary, verdict: dict[str, Any]) -> tuple[str, ...]:
    """Return in words what is not right in a verdict, () if all is."""
    # slow: what the other rank reads from is this program, and that works.
    if verdict.get("outcome") not in ("hang", "silent", "slow"):
        return (f"outcome {verdict.get('outcome')}: {verdict.get('notes')}"[:200],)
    ranks, wrong = verdict["ranks"], []
    blamed = canary.waits if canary.alone else 1 - canary.waits
    if ranks["culprit"] != [blamed]:
        wrong.append(f"blamed {ranks['culprit']}")
    if 1 - blamed not in ranks["waiting"]:
        wrong.append(f"waiting {ranks['waiting']}")
    if verdict["guessed"]:
        wrong.append("guessed")
    words = describe(canary, verdict)
    if not re.search(canary.says, words):
        wrong.append(f"said: {words}")
    return tuple(wrong)


def describe(canary: Canary, verdict: dict[str, Any]) -> str:
    """Return what the rank that enters is said to be in, or to wait for."""
    if canary.alone:
        wait = verdict["waits_for"] or {}
        return f"{verdict['call']} ({wait.get('kind')}: {wait.get('detail')})"
    own = [e for e in verdict["chain"] if e["source"].startswith(f"rank {canary.waits}")]
    return "; ".join(f"{edge['kind']}: {edge['evidence']}" for edge in own)


def try_canaries(canaries: Sequence[Canary], python: str) -> Iterator[Seen]:
    """Try one after another in one job; a new one where the ranks did not leave a meeting, and
    where one is entered before there is a process group.
    """
    left = list(canaries)
    while left:
        with jobs.folder() as folder:
            pair = Pair(python, folder)
            try:
                if not left[0].groupless:
                    _make_group(pair)
                yield from _try_until_stuck(pair, left)
            finally:
                pair.end()


def _make_group(pair: Pair) -> None:
    assert not pair.ready("torch.init_process_group"), "no process group"
    for rank in pair.ranks:
        rank.tell("go")
    assert all(rank.answer(ANSWERS) == "done" for rank in pair.ranks)


def _try_until_stuck(pair: Pair, left: list[Canary]) -> Iterator[Seen]:
    """Try the first of `left`, and all that need no new job; take them out."""
    first = True
    while left and (first or not left[0].groupless):
        first = False
        canary = left.pop(0)
        unready = pair.ready(canary.name)
        if unready:
            yield Seen(canary, ("not prepared: " + "; ".join(unready),))
            return
        if answered := pair.enter(canary):
            yield Seen(canary, (f"does not wait: {answered}",))
            return
        node = pair.look()
        verdict = judge_node(node)
        for _ in range(MORE_LOOKS):  # a library still imports something
            if verdict.get("outcome") != "ok":
                break
            node = pair.look()
            verdict = judge_node(node)
        by_python = judge_node(without_native_frames(node)) if node is not None else {}
        yield Seen(canary, judge(canary, verdict), verdict, judge(canary, by_python))
        if not pair.leave(canary):
            return


def find_lowest_versions(project: Path) -> list[str]:
    """Return a requirement for the lowest minor version of each library that pyproject.toml names
    (`transformers>=4.56`: `transformers==4.56.*`).
    """
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    found = {}
    for requirement in (*extras["pipelines"], *extras["test"]):
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement)
        if match is not None and match[1] in LIBRARIES:
            minor = match[2] if "." in match[2] else f"{match[2]}.0"
            found[match[1]] = f"{match[1]}=={minor}.*"
    return list(found.values())


def make_environment(folder: Path, libraries: Sequence[str] = ()) -> None:
    """Make an environment of the lowest versions of `libraries`, () for all, that has all else from
    the one that runs this.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    shared = next(path for path in sys.path if path.endswith("site-packages"))
    own = next((folder / "lib").glob("python*/site-packages"))
    (own / "shared.pth").write_text(f"{shared}\n")
    lowest = [*find_lowest_versions(PROGRAM.parent.parent / "pyproject.toml"), "filelock==3.0.*"]
    wanted = [one for one in lowest if not libraries or one.partition("==")[0] in libraries]
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, "install", *wanted], check=True)


def read_versions(python: str) -> dict[str, str]:
    """Return the versions of the libraries that a Python has."""
    names = (*LIBRARIES, "torch", "filelock", "huggingface_hub")
    program = (
        "import importlib.metadata as m\n"
        f"for n in {names!r}:\n"
        "    try: print(n.replace('pytorch-', ''), m.version(n))\n"
        "    except m.PackageNotFoundError: pass\n"
    )
    said = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return dict(line.split() for line in said.stdout.splitlines())


def print_table(seen: Sequence[Seen], versions: dict[str, str]) -> None:
    """Print how many meetings of each library were seen."""
    print(
        f"\n{'library':18} {'version':12} {'meetings':>8} {'seen':>5} {'without native frames':>22}"
    )
    for library in dict.fromkeys(one.canary.name.partition(".")[0] for one in seen):
        own = [one for one in seen if one.canary.name.startswith(f"{library}.")]
        print(f"{library:18} {versions.get(library, '?'):12} {_count(own)}")
    print(f"{'all':31} {_count(seen)}")


def _count(seen: Sequence[Seen]) -> str:
    good = sum(not one.wrong for one in seen)
    by_python = sum(not one.wrong and not one.wrong_by_python for one in seen)
    return f"{len(seen):8} {good:5} {by_python:15}"


def main() -> int:
    """Try them, or make an environment."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument(
        "--verdicts", action="store_true", help="print the verdict of what is wrong"
    )
    options = parser.parse_args()
    if options.names[:1] == ["make"]:
        make_environment(Path(options.names[1]).absolute(), options.names[2:])
        return 0
    chosen = [
        one for one in CANARIES if not options.names or one.name.startswith(tuple(options.names))
    ]
    seen = []
    for one in try_canaries(chosen, options.python):
        seen.append(one)
        words = "; ".join(one.wrong) or describe(one.canary, one.verdict)
        print(f"{'WRONG' if one.wrong else 'seen ':6} {one.canary.name:36} {words}", flush=True)
        if one.wrong_by_python and not one.wrong:
            print(f"{'':6} without native frames: {'; '.join(one.wrong_by_python)}", flush=True)
        if one.wrong and options.verdicts:
            print(json.dumps(one.verdict, indent=1), flush=True)
    print_table(seen, read_versions(options.python))
    return int(any(one.wrong for one in seen))


if __name__ == "__main__":
    sys.exit(main())
