"""What is outside a script's job: servers that do not answer, held locks, terminals.

Each yields variables for the job's environment, which its command may name too ($SERVICE), and
words in front of its command. `amount` is how slow what is slow shall be: seconds, or percent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from hangbisect.zoo.parts import processes, servers
from hangbisect.zoo.parts.processes import TERMINAL

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # torchrun, ninja

# A standard output that takes 4 KiB, and that its reader never reads.
_UNREAD = """
import fcntl, os, sys, time
ours, theirs = os.pipe()
fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
if os.fork() == 0:
    os.close(theirs)
    while os.getppid() != 1:
        time.sleep(1)
    os._exit(0)
os.dup2(theirs, 1)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class World:
    """What is given to a job."""

    environment: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()


Make = Callable[[Path, float], AbstractContextManager[World]]


@contextlib.contextmanager
def nothing(place: Path, amount: float) -> Iterator[World]:
    """Nothing is outside."""
    yield World()


@contextlib.contextmanager
def silent_service(place: Path, amount: float) -> Iterator[World]:
    """A server that accepts and never answers: SERVICE is its URL, ADDRESS its host and port."""
    with servers.silent_server() as port:
        yield World({"SERVICE": f"http://127.0.0.1:{port}", "ADDRESS": f"127.0.0.1:{port}"})


@contextlib.contextmanager
def silent_wandb(place: Path, amount: float) -> Iterator[World]:
    """A W&B server that accepts and never answers."""
    with servers.silent_server() as port:
        yield World({"WANDB_BASE_URL": f"http://127.0.0.1:{port}", "WANDB_API_KEY": "0" * 40})


@contextlib.contextmanager
def silent_hub(place: Path, amount: float) -> Iterator[World]:
    """A hub that accepts and never answers, and patience: it gives up after ten minutes."""
    with servers.silent_server() as port:
        patience = {"HF_HUB_ETAG_TIMEOUT": "600", "HF_HUB_DOWNLOAD_TIMEOUT": "600"}
        yield World({"HF_ENDPOINT": f"http://127.0.0.1:{port}", **patience})


@contextlib.contextmanager
def held_hub_lock(place: Path, amount: float) -> Iterator[World]:
    """A hub that serves people/small, and a stranger with the lock of its tokenizer."""
    home = place / "hf"
    servers.fill_hub_cache(home)
    with (
        servers.serve_hub(place) as served,
        processes.hold_flock(served.lock(home, "tokenizer.json")),
    ):
        yield World({**served.environment, "HF_HOME": str(home)})


@contextlib.contextmanager
def trickling_hub(place: Path, amount: float) -> Iterator[World]:
    """A hub that serves people/small, its tokenizer of 15 KiB in about `amount` seconds."""
    rules = [servers.HubRule("GET .*tokenizer.json", every=amount / 30, chunk=500)]
    with servers.serve_hub(place, rules) as served:
        yield World({**served.environment, "HF_HOME": str(place / "hf")})


@contextlib.contextmanager
def trickling_service(place: Path, amount: float) -> Iterator[World]:
    """SERVICE: a server that answers for about `amount` seconds, a byte after the other."""
    line = "all work and no play makes the corpus dull\n"
    body = line * 5
    head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
    with servers.trickling_server(head + body, amount / len(head + body)) as port:
        yield World({"SERVICE": f"http://127.0.0.1:{port}"})


@contextlib.contextmanager
def silent_proxy(place: Path, amount: float) -> Iterator[World]:
    """A proxy that accepts and never answers."""
    with servers.silent_server() as port:
        proxy = f"http://127.0.0.1:{port}"
        yield World({"http_proxy": proxy, "https_proxy": proxy})


@contextlib.contextmanager
def held_lock(place: Path, amount: float) -> Iterator[World]:
    """LOCK: a file that a stranger has locked."""
    with processes.hold_flock(place / "cache.lock"):
        yield World({"LOCK": str(place / "cache.lock")})


@contextlib.contextmanager
def lock_freed_in_time(place: Path, amount: float) -> Iterator[World]:
    """LOCK: a file that a stranger has locked for `amount` seconds."""
    with processes.hold_flock(place / "cache.lock", amount):
        yield World({"LOCK": str(place / "cache.lock")})


@contextlib.contextmanager
def throttled(place: Path, amount: float) -> Iterator[World]:
    """A control group (version 1) that has `amount` percent of a core."""
    group = Path(f"/sys/fs/cgroup/cpu/own-scripts-{os.getpid()}-{place.parent.name}")
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text(str(int(amount * 1000)))  # of 100,000
        enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        yield World(prefix=("sh", "-c", enter, "sh"))
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()


@contextlib.contextmanager
def unopened_fifo(place: Path, amount: float) -> Iterator[World]:
    """FIFO: a named pipe that nobody opens."""
    yield World({"FIFO": str(processes.unopened_fifo(place / "feed"))})


@contextlib.contextmanager
def unread_fifo(place: Path, amount: float) -> Iterator[World]:
    """FIFO: a named pipe that somebody has open and never reads."""
    with processes.unread_fifo(place / "log") as path:
        yield World({"FIFO": str(path)})


@contextlib.contextmanager
def unread_output(place: Path, amount: float) -> Iterator[World]:
    """A standard output that nobody reads."""
    yield World(prefix=(sys.executable, "-I", "-S", "-c", _UNREAD))


@contextlib.contextmanager
def terminal(place: Path, amount: float) -> Iterator[World]:
    """A terminal at which nobody types."""
    yield World(prefix=TERMINAL)


@contextlib.contextmanager
def stale_build_lock(place: Path, amount: float) -> Iterator[World]:
    """A lock file in the cache of extensions, left by a build that was killed yesterday."""
    yesterday = time.time() - 86400
    for name in ("fused", "cpu_adam", "deepspeed_shm_comm", "deepspeed_ccl_comm"):
        lock = place / "extensions" / name / "lock"
        lock.parent.mkdir(parents=True)
        lock.touch()
        os.utime(lock, (yesterday, yesterday))
    yield World({"TORCH_EXTENSIONS_DIR": str(place / "extensions")})


# DeepSpeed's collectives on a CPU are built at the first start: a minute, and not the point here.
_BUILD = """
from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder
ShareMemCommBuilder().load()
"""


@contextlib.contextmanager
def built(place: Path, amount: float) -> Iterator[World]:
    """DeepSpeed's extension, built once and kept in the folder for temporary files."""
    with _extensions() as environment:
        yield World(environment)


@contextlib.contextmanager
def throttled_and_built(place: Path, amount: float) -> Iterator[World]:
    """Both."""
    with _extensions() as environment, throttled(place, amount) as world:
        yield World(environment, world.prefix)


@contextlib.contextmanager
def built_and_silent_service(place: Path, amount: float) -> Iterator[World]:
    """Both."""
    with _extensions() as environment, silent_service(place, amount) as world:
        yield World({**environment, **world.environment})


@contextlib.contextmanager
def terminal_and_built(place: Path, amount: float) -> Iterator[World]:
    """Both."""
    with _extensions() as environment:
        yield World(environment, TERMINAL)


@contextlib.contextmanager
def _extensions() -> Iterator[dict[str, str]]:
    cache = Path(tempfile.gettempdir()) / f"own-scripts-extensions-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    environment = {"TORCH_EXTENSIONS_DIR": str(cache)}
    with open(cache / "own", "a") as once:
        fcntl.flock(once, fcntl.LOCK_EX)
        if not [*cache.glob("*/*.so")]:
            subprocess.run(
                [sys.executable, "-c", _BUILD],
                env={**os.environ, "PATH": PATH, **environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                timeout=600,
            )
    yield environment


@contextlib.contextmanager
def silent_nvidia_smi(place: Path, amount: float) -> Iterator[World]:
    """An nvidia-smi that does not come back."""
    answer = processes.unopened_fifo(place / "nvidiactl")
    processes.put_on_path(place, {"nvidia-smi": f"read answer < {answer}"})
    yield World({"PATH": f"{place / 'bin'}{os.pathsep}{PATH}"})


# A scheduler of yesterday's server, whose server is gone.
_LEFTOVER = """
import os, setproctitle, socket
if os.fork():
    os._exit(0)
setproctitle.setproctitle("sglang::scheduler_TP0")
one = socket.create_server(("127.0.0.1", 0))
os.write(1, b"%d %d\\n" % (one.getsockname()[1], os.getpid()))
while True:
    one.accept()
"""


@contextlib.contextmanager
def leftover_server(place: Path, amount: float) -> Iterator[World]:
    """PORT: one at which a process of an earlier server listens, LEFTOVER its pid."""
    words = [sys.executable, "-c", _LEFTOVER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as one:
        assert one.stdout is not None
        port, pid = one.stdout.readline().split()
        try:
            yield World({"PORT": port, "LEFTOVER": pid})
        finally:
            os.kill(int(pid), signal.SIGKILL)


_SHARER = """
import os, setproctitle, socket, time
if os.fork():
    os._exit(0)
setproctitle.setproctitle("VLLM::APIServer")
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
one.bind(("127.0.0.1", 0))
one.listen()
os.write(1, b"%d %d\\n" % (one.getsockname()[1], os.getpid()))
while True:
    time.sleep(3600)
"""


@contextlib.contextmanager
def leftover_that_shares_its_port(place: Path, amount: float) -> Iterator[World]:
    """PORT: one at which an earlier server listens with SO_REUSEPORT and accepts nothing."""
    words = [sys.executable, "-c", _SHARER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as one:
        assert one.stdout is not None
        port, pid = one.stdout.readline().split()
        try:
            yield World({"PORT": port})
        finally:
            os.kill(int(pid), signal.SIGKILL)


# A user of a server, outside of its job: it waits until the server says that it is ready, and asks.
_CLIENT = """
import sys, time, urllib.request
server = "http://127.0.0.1:" + sys.argv[1]
while True:
    try:
        urllib.request.urlopen(server + "/health", timeout=5)
        break
    except OSError:
        time.sleep(1)
time.sleep(2)
urllib.request.urlopen(server + "/generate", data=b"once upon a time").read()
"""


@contextlib.contextmanager
def late_client(place: Path, amount: float) -> Iterator[World]:
    """PORT: a free one, at which somebody asks POST /generate once GET /health is answered."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [sys.executable, "-c", _CLIENT, port]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True) as one:
        try:
            yield World({"PORT": port})
        finally:
            one.kill()


@contextlib.contextmanager
def late_client_and_silent_service(place: Path, amount: float) -> Iterator[World]:
    """Both."""
    with silent_service(place, amount) as service, late_client(place, amount) as client:
        yield World({**service.environment, **client.environment})


WORLDS: dict[str, Make] = {
    made.__name__: made
    for made in (
        nothing,
        silent_service,
        silent_wandb,
        silent_hub,
        held_hub_lock,
        trickling_hub,
        trickling_service,
        silent_proxy,
        held_lock,
        lock_freed_in_time,
        throttled,
        unopened_fifo,
        unread_fifo,
        unread_output,
        terminal,
        stale_build_lock,
        built,
        built_and_silent_service,
        throttled_and_built,
        terminal_and_built,
        silent_nvidia_smi,
        leftover_server,
        leftover_that_shares_its_port,
        late_client,
        late_client_and_silent_service,
    )
}
