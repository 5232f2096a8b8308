"""A Slurm of two nodes on this machine: a controller, two daemons, and munge, in a folder of ours.

Both nodes have the host's name. Nothing of the machine's own Slurm, if there is one, is touched.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scancel")
NODES = ("n0", "n1")
CORES = 8  # of each node, however many there are: more tasks than cores is fine here
COMING_UP = 60.0
_SBIN = ("/usr/sbin", "/usr/local/sbin", "/sbin")  # in the PATH of root alone
_MARK = "HANGBISECT_TEST_SLURM"


def missing() -> str:
    """Return why there can be no Slurm here, "" if there can be one."""
    absent = [name for name in PROGRAMS if _program(name) is None]
    if absent:
        return f"no {', '.join(absent)} here (Debian: slurm-wlm and munge)"
    return "" if os.getuid() == 0 else "slurmd starts tasks as root only"


class Slurm:
    """The daemons, and what their clients need in the environment."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.environ = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._mark = uuid.uuid4().hex
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all daemons; return when both nodes are free."""
        self._write()
        place = self.folder
        self._run(
            *("munged", "--foreground", "--force", "--num-threads=2"),
            *(f"--socket={place}/munge.socket", f"--key-file={place}/key"),
            *(f"--log-file={place}/munged.log", f"--pid-file={place}/munged.pid"),
            f"--seed-file={place}/munged.seed",
        )
        self._until(lambda: (place / "munge.socket").exists())
        self._run("slurmctld", "-D", "-f", place / "slurm.conf")
        for node in NODES:
            self._run("slurmd", "-D", "-N", node, "-f", place / "slurm.conf")
        self._until(lambda: self.ask("sinfo", "--noheader", "--format=%D %T") == "2 idle")

    def end(self) -> None:
        """End jobs and daemons, and remove the folder."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["scancel", "--signal=KILL", "--full", f"--user={_me()}"],
                env={**os.environ, **self.environ},
                capture_output=True,
                timeout=10,
            )
        for daemon in self._daemons[1:]:  # munge last: the others need it
            daemon.terminate()
        for daemon in self._daemons[1:]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *command: str) -> str:
        """Return what a client prints: `sinfo`, `squeue`."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=COMING_UP,
        )
        return done.stdout.strip()

    def find_slurmd(self, node: str) -> psutil.Process:
        """Return the daemon of a node."""
        for daemon in map(psutil.Process, (one.pid for one in self._daemons)):
            words = daemon.cmdline()
            if words[0].endswith("slurmd") and node in words:
                return daemon
        raise LookupError(node)

    def inside(self, nodes: int, ranks: int) -> list[str]:
        """Return the words that run a command in an allocation, `ranks` tasks a node."""
        return ["salloc", "--quiet", f"--nodes={nodes}", f"--ntasks-per-node={ranks}"]

    def is_free(self) -> bool:
        """Return whether nothing is queued or runs, once all that ends has ended."""
        with contextlib.suppress(TimeoutError):
            self._until(lambda: not self.ask("squeue", "--noheader"))
            return True
        return False

    def _run(self, program: str, *words: object) -> None:
        log = (self.folder / f"{program}.out").open("ab")
        with log:
            self._daemons.append(
                subprocess.Popen(
                    [str(_program(program)), *map(str, words)],
                    env={**os.environ, **self.environ, _MARK: self._mark},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + COMING_UP
        while not done():
            if time.monotonic() > end:
                logs = [f.read_text()[-1500:] for f in self.folder.glob("*.log")]
                raise TimeoutError("\n".join(logs))
            time.sleep(0.1)

    def _left(self) -> Iterator[int]:
        mark = f"{_MARK}={self._mark}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                environ = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
                if mark in environ.split(b"\0"):
                    yield int(entry.name)

    def _write(self) -> None:
        place = self.folder
        place.chmod(0o755)  # munge: nobody else may write in it
        (place / "state").mkdir()
        key = place / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        ports = _free_ports(1 + len(NODES))
        (place / "slurm.conf").write_text(
            f"""\
ClusterName=here
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={_me()}
SlurmdUser={_me()}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
"""
            + "".join(
                f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
                f"CPUs={CORES} RealMemory=500 State=UNKNOWN\n"
                for name, port in zip(NODES, ports[1:], strict=True)
            )
            + f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP\n"
        )


def _program(name: str) -> str | None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SBIN])
    return shutil.which(name, path=path)


def _me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _free_ports(count: int) -> Sequence[int]:
    """Return ports that nobody listens on now."""
    with contextlib.ExitStack() as open_ones:
        made = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in made:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in made]
