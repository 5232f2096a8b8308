"""Several hosts on this machine: namespaces of their own, joined by a network of their own.

    with hosts.Hosts(2) as made:
        first, second = made
        done = first.run(["ping", "-c1", "n2"])

Each host has its own processes (/proc), /dev/shm, /tmp, /run, host name (n1, n2, ...), IPC, network
(10.77.0.K on a bridge, and a loopback of its own) and monotonic clock. /etc/hosts knows all names,
and there is no DNS. `Hosts.folder` is the one folder that all see at the same path; with
`shared=False` each host has its own folder there.

It needs root, or what root may do: `missing()` says why it is not possible. Nothing of the machine
is touched, and nothing reaches any other network. Every host ends with the process that made it:
its first process ends as soon as nobody holds the pipe to it, and a pid namespace ends with that.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jobs
import psutil

PROGRAMS = ("unshare", "nsenter", "ip", "mount")
NETWORK = ipaddress.ip_network("10.77.0.0/24")
COMING_UP = 60.0  # seconds for a host or a daemon, on a busy machine
CLOCKS = 5000.0  # seconds between the monotonic clocks of two hosts, unless they are given
_NAMESPACES = ("--pid", "--mount", "--uts", "--ipc", "--net", "--time")
_NOWHERE = "02:00:00:00:00:fe"  # a hardware address that nobody has
_FIRST = Path(__file__).with_name("hosts_first_process.py")
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"  # in the PATH of root alone


def missing() -> str:
    """Return why there can be no hosts here, "" if there can be."""
    absent = [name for name in PROGRAMS if program(name) is None]
    if absent:
        return f"no {', '.join(absent)} here (Debian: util-linux and iproute2)"
    probe = "ip link add v0 type veth peer name v1 && ip link add b0 type bridge"
    tried = subprocess.run(
        ["unshare", "--fork", "--mount-proc", *_NAMESPACES, "sh", "-c", probe],
        capture_output=True,
        text=True,
        env=_environ(),
    )
    why = (tried.stderr.strip().splitlines() or [f"status {tried.returncode}"])[-1]
    return f"no namespaces for us here: {why}" if tried.returncode else ""


def program(name: str) -> str | None:
    """Return the path of a program, None if there is none."""
    return shutil.which(name, path=_environ()["PATH"])


class Host:
    """One host. `pid` is its first process, seen from outside."""

    def __init__(self, made: Hosts, number: int, clock: float) -> None:
        """Start it; it has no network yet."""
        self.name, self.number = f"n{number}", number
        self.address = str(NETWORK[number])
        self.alive = True
        self._made = made
        self._enter: tuple[str, ...] = ()
        with (made.root / "etc" / f"unshare-{self.name}.log").open("ab") as log:
            self._outer = self._unshare(clock, log)
        assert self._outer.stdout is not None
        if self._outer.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{self.name} did not come up: {Path(log.name).read_text()}")
        self.pid = psutil.Process(self._outer.pid).children()[0].pid
        self._enter = ("nsenter", f"--target={self.pid}", *_NAMESPACES)

    def _unshare(self, clock: float, log: Any) -> subprocess.Popen[bytes]:
        made = self._made
        return subprocess.Popen(
            [
                *("unshare", "--kill-child", "--fork", "--mount-proc", *_NAMESPACES),
                *(f"--monotonic={clock:.0f}", "--", sys.executable, "-I", "-S", str(_FIRST)),
                *(self.name, str(made.root), str(self.inside_folder)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environ(),
            start_new_session=True,
        )

    @property
    def inside_folder(self) -> Path:
        """What this host sees as `Hosts.folder`, as a path outside of it."""
        made = self._made
        return made.folder if made.shared else made.root / f"folder-{self.name}"

    @property
    def root(self) -> Path:
        """Its file system, seen from outside: `host.root / "dev/shm"`."""
        return Path(f"/proc/{self.pid}/root")

    def words(self, folder: str | Path = "") -> list[str]:
        """Return the words to put before a command that is to run here, in a folder."""
        return [*self._enter, f"--wd={folder or self._made.folder}", "--"]

    def start(
        self,
        command: Sequence[object],
        env: Mapping[str, str] | None = None,
        folder: str | Path = "",
        **how: Any,
    ) -> subprocess.Popen[str]:
        """Start a command here, in a session of its own; `how` is for Popen.

        `env` is added to a clean environment. os.killpg signals the command: nsenter, which waits
        for it, hands nothing on.
        """
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*self.words(folder), *map(str, command)],
            env={**_environ(jobs.clean_environ()), **(env or {})},
            start_new_session=True,
            **{"text": True, **pipes, **how},
        )

    def run(
        self,
        command: Sequence[object],
        env: Mapping[str, str] | None = None,
        limit: float = COMING_UP,
        **how: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here to its end, at most `limit` seconds (status -9 after that)."""
        started = self.start(command, env, **how)
        try:
            out, err = started.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            out, err = started.communicate(timeout=COMING_UP)
        return subprocess.CompletedProcess([*map(str, command)], started.returncode, out, err)

    def processes(self) -> dict[int, str]:
        """Return what runs here but its first process and daemons: words, by the pid outside."""
        mine = _namespace(self.pid)
        found = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            if pid == self.pid or not mine or _namespace(pid) != mine:
                continue
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if words and not words.startswith(DAEMONS):
                    found[pid] = words.strip()
        return found

    def left(self) -> list[str]:
        """Return what a job may have left here: processes, and files in /dev/shm and /tmp."""
        known = [*self.processes().values()]
        for place in ("dev/shm", "tmp"):
            known += [f"/{place}/{name}" for name in os.listdir(self.root / place)]
        # torch leaves folders behind, with us and without.
        theirs = (f"/tmp/{self._made.root.name}", "/tmp/torchelastic_", "/tmp/torchinductor_")
        return [one for one in known if not one.startswith(theirs)]

    def die(self) -> None:
        """Let it lose its power: nothing that it had says goodbye to anybody."""
        self._made.cut(self)
        os.kill(self.pid, signal.SIGKILL)
        self._outer.wait(COMING_UP)
        self.alive = False

    def end(self) -> None:
        """End it and all that runs in it."""
        assert self._outer.stdin is not None
        assert self._outer.stdout is not None
        self._outer.stdin.close()
        try:
            self._outer.wait(10)
        except subprocess.TimeoutExpired:
            self._outer.kill()  # its child ends with it
            self._outer.wait(COMING_UP)
        self._outer.stdout.close()
        self.alive = False


class Hosts:
    """So many hosts and what joins them. `with Hosts(2) as made:`, or end() in the end."""

    def __init__(self, count: int, shared: bool = True, clocks: Sequence[float] = ()) -> None:
        """Start them. `clocks` are seconds by which their monotonic clocks go ahead."""
        self.shared = shared
        self.root = Path(tempfile.mkdtemp(prefix="hosts-"))
        self.folder = self.root / "folder"
        self.all: list[Host] = []
        self._bridge: Host | None = None
        self._daemons: list[subprocess.Popen[str]] = []
        try:
            self._write(count)
            self._bridge = Host(self, 0, 0.0)
            _ip(self._bridge, "link add hub type bridge", "link set hub up")
            for number in range(1, count + 1):
                clock = clocks[number - 1] if clocks else CLOCKS * number
                self.all.append(Host(self, number, clock))
                self._join(self.all[-1])
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __iter__(self) -> Iterator[Host]:
        return iter(self.all)

    def __getitem__(self, number: int) -> Host:
        return self.all[number]

    @property
    def names(self) -> list[str]:
        """The names of all hosts."""
        return [host.name for host in self.all]

    def end(self) -> None:
        """End all hosts, and remove the folder."""
        for host in [*self.all, *([self._bridge] if self._bridge else [])]:
            with contextlib.suppress(Exception):
                host.end()
        for daemon in self._daemons:
            daemon.wait(COMING_UP)
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- the network -----------------------------------------------------------------------

    def cut(self, host: Host, *others: Host) -> None:
        """Let nothing more get from a host to `others` (none: to any) or back: it is lost on the
        way, and nobody is told.
        """
        nowhere = f"lladdr {_NOWHERE} nud permanent dev eth0"
        for other in others or [one for one in self.all if one is not host]:
            for one, there in ((host, other), (other, host)):
                if one.alive:
                    _ip(one, f"neigh replace {there.address} {nowhere}")

    def heal(self) -> None:
        """Let everything get through again."""
        for one in self.all:
            for there in self.all:
                if one is not there and one.alive:
                    _ip(one, f"neigh flush to {there.address} nud permanent dev eth0")

    def _join(self, host: Host) -> None:
        assert self._bridge is not None
        name = host.name
        # Outside of both pid namespaces, so that the pid is the one that we know.
        outside = ["nsenter", f"--target={self._bridge.pid}", "--net", "ip", "link", "add", name]
        subprocess.run(
            [*outside, *f"type veth peer name eth0 netns {host.pid}".split()],
            check=True,
            env=_environ(),
        )
        _ip(self._bridge, f"link set {name} master hub", f"link set {name} up")
        address = f"{host.address}/{NETWORK.prefixlen}"
        _ip(host, f"address add {address} dev eth0", "link set eth0 up")

    def _write(self, count: int) -> None:
        """Write what every host has in /etc."""
        self.root.chmod(0o755)  # munge: nobody else may write in it
        self.folder.mkdir()
        for number in range(count + 1):
            (self.root / f"folder-n{number}").mkdir()
        etc = self.root / "etc"
        etc.mkdir()
        rows = [f"{NETWORK[number]} n{number}" for number in range(1, count + 1)]
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *rows, ""]))
        (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        (etc / "resolv.conf").write_text("")
        (etc / "ssh").mkdir()
        (etc / "ssh" / "ssh_config").write_text(
            f"IdentityFile {etc}/user_key\nUserKnownHostsFile /dev/null\n"
            "StrictHostKeyChecking no\nBatchMode yes\nLogLevel ERROR\n"
        )

    # ---- daemons ---------------------------------------------------------------------------

    def daemon(self, host: Host, *words: object) -> None:
        """Start a daemon, in the foreground, on a host; its output is in etc/NAME.log."""
        name = f"{Path(str(words[0])).name}-{host.name}"
        with (self.root / "etc" / f"{name}.log").open("ab") as log:
            path = program(str(words[0])) or str(words[0])
            output: dict[str, Any] = {"stdout": log, "stderr": log}
            self._daemons.append(host.start([path, *words[1:]], **output))

    def until(self, done: Callable[[], bool], what: str, limit: float = COMING_UP) -> None:
        """Wait until something is so. Raises TimeoutError with what the daemons say."""
        end = time.monotonic() + limit
        while not done():
            if time.monotonic() > end:
                logs = [file.read_text()[-1500:] for file in (self.root / "etc").glob("*.log")]
                raise TimeoutError("\n".join([what, *logs]))
            time.sleep(0.05)


# Not what a job left: their names, as /proc has them.
DAEMONS = ("sshd", "/usr/sbin/sshd", "/usr/sbin/munged", "/usr/sbin/slurm", "slurm")


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _ip(host: Host, *lines: str) -> None:
    """Run commands of ip(8) in a host's network."""
    for line in lines:
        done = host.run(["ip", *line.split()], folder="/")
        if done.returncode:
            raise RuntimeError(f"ip {line}: {done.stderr.strip()}")


def _environ(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {**environ, "PATH": f"{environ.get('PATH', os.defpath)}:{_SBIN}"}
