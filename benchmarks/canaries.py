"""Whether the calls in which ranks of each library wait are seen, by the oldest and newest version.

    python benchmarks/canaries.py make FOLDER         the oldest versions, into an environment there
    python benchmarks/canaries.py [NAME ...]          with the installed versions
    python benchmarks/canaries.py --python FOLDER/bin/python [NAME ...]

Two gloo ranks; for each meeting, one that begins with a NAME (all), a rank enters it and the other
one reads its stdin, or stands in a lock that it has. `hangbisect attach` looks at both. It is seen
if the rank that waits is not blamed, the other one is, and the wait is told by the words that
stand below. What a rank waits for by itself (a server, a worker) is seen if that rank is blamed,
with the call. Aim: all of them. At the end a table of library, version, meetings and seen.

`make` takes the lowest version of each library from pyproject.toml. torch is shared with the
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
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jobs
import psutil
from hangbisect.attach.answer import add_time
from hangbisect.attach.jobs import find_jobs
from hangbisect.attach.judgement import judge_nodes
from hangbisect.attach.node_facts import look_at_job
from hangbisect.base.json_codec import to_json

PROGRAM = Path(__file__).with_name("canary_rank.py")
ANSWERS = 400.0  # seconds in which a rank has prepared a meeting: libraries are imported
LEAVES = 30.0  # seconds in which it has left one once nothing blocks it
MORE_LOOKS = 5  # where something moved, a library that is imported
LOOK_LIMIT = 90.0  # seconds for one attach
LIBRARIES = ("accelerate", "deepspeed", "lightning", "pytorch-lightning", "transformers", "wandb")


@dataclass(frozen=True)
class Canary:
    """A meeting, and what is right to be said of it."""

    name: str
    says: str  # a regular expression: in what the rank that waits is said to wait for
    waits: int = 0  # the rank that enters it
    alone: bool = False  # nobody else is to come: the rank that enters is blamed


@dataclass(frozen=True)
class Seen:
    """What `attach` said of one."""

    canary: Canary
    wrong: tuple[str, ...]  # in words, what is not right
    verdict: dict[str, Any] = field(default_factory=dict)


def _meet(library: str, **says: str) -> tuple[Canary, ...]:
    return tuple(Canary(f"{library}.{name}", words) for name, words in says.items())


_SAME = (
    "barrier monitored_barrier all_reduce all_gather broadcast reduce gather scatter "
    "reduce_scatter all_to_all_single recv"
)
CANARIES = (
    Canary("torch.init_process_group", "^store: _create_c10d_store"),
    *(Canary(f"torch.{name}", rf"^collective: {name}\b") for name in _SAME.split()),
    Canary("torch.new_group", "^store: _new_process_group_helper"),
    Canary("torch.all_gather_into_tensor", "^collective: all_gather_(?:into_tensor|single)"),
    Canary("torch.all_gather_object", "^collective: all_gather"),
    Canary("torch.broadcast_object_list", "^collective: broadcast"),
    Canary("torch.gather_object", "^collective: (?:all_)?gather"),
    Canary("torch.batch_isend_irecv", "^collective: "),
    Canary("torch.Work.wait", "^collective: "),
    Canary("torch.functional all_reduce", "^collective: "),
    Canary("torch.Store.get", "^(?:store|socket): "),
    Canary("torch.Store.wait", "^(?:store|socket): "),
    Canary("torch.elastic barrier", "store"),
    Canary("torch.elastic synchronize", "store"),
    Canary("torch.DistributedDataParallel", "_verify_param_shape|DistributedDataParallel"),
    Canary("torch.backward", "backward"),
    Canary("torch.FSDP forward", "all_gather"),
    Canary("torch.fully_shard forward", "all_gather"),
    Canary("torch.checkpoint.save", "gather|scatter|broadcast"),
    Canary("torch.Join", "all_reduce|broadcast|Join|join|backward"),
    Canary("accelerate.wait_for_everyone", "barrier"),
    Canary("accelerate.gather", "all_gather"),
    Canary("accelerate.gather_for_metrics", "all_gather"),
    Canary("accelerate.reduce", "all_reduce"),
    Canary("accelerate.pad_across_processes", "all_gather"),
    Canary("accelerate.gather_object", "all_gather"),
    Canary("accelerate.broadcast", "broadcast"),
    Canary("accelerate.broadcast_object_list", "broadcast"),
    Canary("accelerate.main_process_first", "barrier", waits=1),
    Canary("accelerate.prepare", "_verify_param_shape|DistributedDataParallel"),
    Canary("accelerate.backward", "backward"),
    Canary("transformers.main_process_first", "barrier", waits=1),
    Canary(
        "transformers.Trainer.train",
        "_verify_param_shape|DistributedDataParallel|all_gather|broadcast",
    ),
    Canary(
        "transformers.Trainer.evaluate",
        "gather|broadcast|_verify_param_shape|DistributedDataParallel",
    ),
    Canary(
        "lightning.Trainer.fit", "barrier|broadcast|_verify_param_shape|DistributedDataParallel"
    ),
    Canary("lightning.Trainer.validate", "barrier|broadcast"),
    Canary("lightning.Trainer.save_checkpoint", "barrier|broadcast"),
    Canary("lightning.strategy.barrier", "barrier"),
    Canary("lightning.strategy.broadcast", "broadcast"),
    Canary("lightning.strategy.reduce", "all_reduce|barrier"),
    Canary("lightning.strategy.all_gather", "all_gather"),
    Canary("lightning.Fabric.barrier", "barrier"),
    Canary("lightning.Fabric.all_gather", "all_gather"),
    Canary("lightning.Fabric.all_reduce", "all_reduce|barrier"),
    Canary("lightning.Fabric.broadcast", "broadcast"),
    Canary("lightning.Fabric.setup", "_verify_param_shape|DistributedDataParallel"),
    Canary("lightning.Fabric.save", "barrier"),
    Canary("lightning.Fabric.rank_zero_first", "barrier", waits=1),
    Canary("lightning.Fabric.backward", "backward"),
    Canary("deepspeed.comm.barrier", "barrier"),
    Canary("deepspeed.comm.monitored_barrier", "monitored_barrier"),
    Canary("deepspeed.comm.all_reduce", "all_reduce"),
    Canary("deepspeed.comm.broadcast", "broadcast"),
    Canary("deepspeed.comm.all_gather", "all_gather"),
    Canary("filelock.FileLock.acquire", "^lock: "),
    Canary("huggingface_hub.WeakFileLock", "^lock: "),
    Canary("torch.FileBaton.wait", "baton", alone=True),
    Canary("torch.DataLoader worker", "DataLoader", alone=True),
    Canary("huggingface_hub.hf_hub_download", "huggingface_hub.hf_hub_download", alone=True),
    Canary("transformers.from_pretrained", "transformers.AutoConfig.from_pretrained", alone=True),
    Canary("wandb.finish", "wandb.finish", alone=True),
    Canary("wandb.init", "wandb.init", alone=True),
    Canary("torch.rpc.init_rpc", "init_rpc|rpc"),
    Canary("torch.rpc.shutdown", "shutdown|rpc|barrier"),
)


class SilentServer:
    """A server of HTTP that answers nothing, until it is told to say that it knows nothing."""

    def __init__(self) -> None:
        """Listen on a port of this machine."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._answers = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def answer(self, yes: bool) -> None:
        """Answer from now on, or no more."""
        self._answers.set() if yes else self._answers.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(1 << 16)
            self._answers.wait()
            connection.sendall(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )


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
            "WANDB_BASE_URL": self.server.url,
            "WANDB_API_KEY": "0" * 40,
            "WANDB_DIR": str(folder),
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
        if canary.name == "wandb.finish":
            self._signal_children(signal.SIGSTOP)
        if canary.name == "torch.FileBaton.wait":
            (self.folder / "baton").touch()
        for rank in self.ranks if canary.alone else [self.ranks[canary.waits]]:
            rank.tell("go")
        return self.ranks[canary.waits].answer(0.5)

    def leave(self, canary: Canary) -> bool:
        """Let both go on; return whether they did."""
        self.server.answer(True)
        self._signal_children(signal.SIGCONT)
        (self.folder / "baton").unlink(missing_ok=True)
        if canary.name == "torch.DataLoader worker":
            with contextlib.suppress(OSError):
                os.close(os.open(self.folder / "fifo", os.O_WRONLY | os.O_NONBLOCK))
        if not canary.alone:
            self.ranks[1 - canary.waits].tell("go")
        left = [rank.answer(LEAVES) for rank in self.ranks]
        self.server.answer(False)
        return all(one == "done" or (canary.alone and one) for one in left)

    def _signal_children(self, number: int) -> None:
        for child in psutil.Process(self.ranks[0].process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)

    def look(self) -> dict[str, Any]:
        """Return the verdict of `attach`, {} if there is none; taken here: the command imports as
        much each time as the ranks.
        """
        return asyncio.run(_look([rank.process.pid for rank in self.ranks]))

    def end(self) -> None:
        """End both."""
        for rank in self.ranks:
            rank.end()


async def _look(pids: list[int]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        async with asyncio.timeout(LOOK_LIMIT):
            found = await find_jobs(pids)
            node = await look_at_job(found.jobs[0], found.processes)
    except TimeoutError:
        return {}
    judgement = add_time(judge_nodes([node], [], time.monotonic()), began)
    verdict: dict[str, Any] = to_json(judgement.verdict)
    return verdict


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
    """Try one after another in one job; a new one where the ranks did not leave a meeting."""
    left = list(canaries)
    while left:
        with jobs.folder() as folder:
            pair = Pair(python, folder)
            try:
                if left[0].name != "torch.init_process_group":
                    assert not pair.ready("torch.init_process_group"), "no process group"
                    for rank in pair.ranks:
                        rank.tell("go")
                    assert all(rank.answer(ANSWERS) == "done" for rank in pair.ranks)
                yield from _try_until_stuck(pair, left)
            finally:
                pair.end()


def _try_until_stuck(pair: Pair, left: list[Canary]) -> Iterator[Seen]:
    while left:
        canary = left.pop(0)
        unready = pair.ready(canary.name)
        if unready:
            yield Seen(canary, ("not prepared: " + "; ".join(unready),))
            return
        if answered := pair.enter(canary):
            yield Seen(canary, (f"does not wait: {answered}",))
            return
        verdict = pair.look()
        for _ in range(MORE_LOOKS):  # a library still imports something
            if verdict.get("outcome") != "ok":
                break
            verdict = pair.look()
        yield Seen(canary, judge(canary, verdict), verdict)
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


def make_environment(folder: Path) -> None:
    """Make an environment of the lowest versions, that has all else from the one that runs this."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    shared = next(path for path in sys.path if path.endswith("site-packages"))
    own = next((folder / "lib").glob("python*/site-packages"))
    (own / "shared.pth").write_text(f"{shared}\n")
    wanted = [*find_lowest_versions(PROGRAM.parent.parent / "pyproject.toml"), "filelock==3.0.*"]
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
    print(f"\n{'library':18} {'version':12} {'meetings':>8} {'seen':>5}")
    for library in dict.fromkeys(one.canary.name.partition(".")[0] for one in seen):
        own = [one for one in seen if one.canary.name.startswith(f"{library}.")]
        good = sum(not one.wrong for one in own)
        print(f"{library:18} {versions.get(library, '?'):12} {len(own):8} {good:5}")
    print(f"{'all':31} {len(seen):8} {sum(not one.wrong for one in seen):5}")


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
        make_environment(Path(options.names[1]).absolute())
        return 0
    chosen = [
        one for one in CANARIES if not options.names or one.name.startswith(tuple(options.names))
    ]
    seen = []
    for one in try_canaries(chosen, options.python):
        seen.append(one)
        words = "; ".join(one.wrong) or describe(one.canary, one.verdict)
        print(f"{'WRONG' if one.wrong else 'seen ':6} {one.canary.name:36} {words}", flush=True)
        if one.wrong and options.verdicts:
            print(json.dumps(one.verdict, indent=1), flush=True)
    print_table(seen, read_versions(options.python))
    return int(any(one.wrong for one in seen))


if __name__ == "__main__":
    sys.exit(main())
