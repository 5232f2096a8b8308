"""Whether a hang of several hosts gets one verdict, right about rank, host and cause.

    python benchmarks/hang_on_hosts.py [CASE ...] [--by run,files,attach] [--keep DIR]

CASES are the truth: programs of host_programs/ over two and four hosts without a shared folder,
in each of which one rank does something else at one place, or one host never starts. A job is
started twice: under `hangbisect run` on each host (`run`; what its monitors wrote is then put
together by `hangbisect merge`: `files`; with --apart they do not talk to each other), and without
us, to be asked by `hangbisect attach --hosts` from a host of its own (`attach`).

OWN_CASES (host_own_cases.py), LATER_CASES (host_later_cases.py), LAUNCHED_CASES
(host_launched_cases.py), UNLIKE_CASES (host_unlike_cases.py), FURTHER_CASES
(host_further_cases.py) and CLUSTER_CASES (host_cluster_cases.py) are jobs as users write them:
trainings, pipelines, servers and workers, agents that do not agree. Those that are healthy must
not be called a hang, and end well.

Right is an answer that blames this rank on this host and no other, has one of the causes, and is
given once: by `run` one heading of a verdict on all hosts together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hosts_services
import jobs
from host_case import Case, OwnCase
from host_cluster_cases import CLUSTER_CASES
from host_further_cases import FURTHER_CASES
from host_later_cases import LATER_CASES
from host_launched_cases import LAUNCHED_CASES
from host_own_cases import OWN_CASES
from host_unlike_cases import UNLIKE_CASES
from hosts import Host, Hosts, missing

PROGRAMS = Path(__file__).with_name("host_programs")
SCRIPTS = Path(sys.executable).parent
HANGBISECT = str(SCRIPTS / "hangbisect")
HEADINGS = ("HANG  ", "SILENT  ", "CRASH  ", "INTERRUPTED  ", "SLOW  ")
TOKEN = "0123456789abcdef0123456789abcdef"
STALL = 4.0
LIMIT = 150.0  # seconds for a verdict
SETTLES = 5.0  # seconds in which a second verdict would be printed
WAYS = ("run", "files", "attach")
_SERVICE = """\
import socket
server = socket.create_server(("", 9300))
connections = []
while True:
    connections.append(server.accept())
"""


_SERVICES = ("service-silent", "endpoint-silent")
_MARKERS = ("lock-file-left", "lock-file-without-owner", "lock-file-of-another", "polling-loop")
_SKIPPED = ("rank-conditional-collective", "collective-mismatch", "gloo-mismatch")
_DEAD = ("worker-dead", "dead-producer", "pool-worker-lost", "pipe-writer-gone")
_UNMET = ("nodes-not-joined", "rendezvous-unreachable", "other-node-missing")
_LOST = ("rank-died", "killed-from-outside")

CASES: tuple[Case, ...] = (
    Case("star-fifo", "star", "fifo", "between", 4, 2, ("pipe-no-writer",)),
    Case("star-flock", "star", "flock", "before", 2, 0, ("file-lock-held",)),
    Case("star-import-service", "star", "service", "import", 2, 1, _SERVICES),
    Case("star-import-marker", "star", "marker", "import", 4, 3, _MARKERS),
    Case("star-worker", "star", "worker", "between", 2, 1, _DEAD),
    Case("star-absent", "star", "", "", 4, -1, ("other-node-missing",), absent=3),
    Case("ring-child", "ring", "child", "between", 4, 3, ("child-program",)),
    Case("ring-stopped", "ring", "stopped", "between", 4, 1, ("stopped",)),
    Case("ring-sleep", "ring", "sleep", "end", 2, 0, ("own-code-sleeps",)),
    Case("ring-flock", "ring", "flock", "rendezvous", 2, 1, ("file-lock-held",)),
    Case("store-lock", "store_steps", "lock", "rendezvous", 4, 2, ("self-deadlock",)),
    Case("store-leaves", "store_steps", "leaves", "between", 2, 1, ("rank-left",)),
    Case(
        *("store-killed", "store_steps", "killed", "between", 4, 1, _LOST),
        outcomes=("hang", "silent", "crash"),
    ),
    Case("store-service", "store_steps", "service", "before", 4, 0, _SERVICES),
    Case("gloo-skips", "train", "skips", "collective", 2, 3, _SKIPPED, 2, agents=True),
    Case("gloo-worker", "train", "worker", "between", 2, 0, _DEAD, 2, agents=True),
    Case("gloo-fifo", "train", "fifo", "before", 2, 1, ("pipe-no-writer",), 2, agents=True),
    Case("gloo-service", "train", "service", "end", 2, 2, _SERVICES, 2, agents=True),
    Case("gloo-lock", "train", "lock", "between", 4, 2, ("self-deadlock",), agents=True),
    Case("gloo-stopped", "train", "stopped", "before", 4, 3, ("stopped",), agents=True),
    Case(
        *("gloo-raises", "train", "raises", "between", 2, 2, ("", "peer-ended-early")),
        a_node=2,
        agents=True,
        outcomes=("crash",),
    ),
    Case(
        *("gloo-absent", "train", "", "", 4, -1, _UNMET),
        agents=True,
        absent=2,
        says="3 of 4 nodes",
    ),
    Case(
        *("c10d-absent", "train", "", "", 4, -1, _UNMET, 2),
        agents=True,
        absent=3,
        says="3 of 4 nodes",
        c10d=True,
    ),
)

_OWN_ORDER = ("lock-order", "deadlock")
_CHILD = ("child-program", "child-process-stuck")
_FILTER = (*_CHILD, "deadlock")  # the child waits for its input, which the rank has not closed
_GIVER = ("dead-producer",)  # the thread that was to put or notify has ended
_ANY = ("hang", "silent", "crash")

# By program: the kind, the place, hosts, the rank to blame, the causes, ranks of a host.
CASES += (
    Case("star-order", "star", "order", "between", 2, 1, _OWN_ORDER),
    Case("star-condition", "star", "condition", "first", 4, 1, _GIVER),
    Case("star-thread", "star", "thread", "before", 2, 2, _GIVER, 2),
    Case("star-peer", "star", "peer", "import", 4, 0, _SERVICES),
    Case("star-input", "star", "input", "between", 2, 0, _FILTER),
    Case("star-leaves", "star", "leaves", "before", 4, 3, ("rank-left",)),
    Case("star-killed", "star", "killed", "import", 2, 3, _LOST, 2, outcomes=_ANY),
    Case("star-missing", "star", "missing", "", 2, 3, ("rank-never-started",), 2),
    Case("star-stopped", "star", "stopped", "collective", 4, 0, ("stopped",)),
    Case("star-lock", "star", "lock", "between", 4, 5, ("self-deadlock",), 2),
    Case("star-import-child", "star", "child", "import", 2, 1, _CHILD),
    Case("ring-order", "ring", "order", "rendezvous", 4, 2, _OWN_ORDER),
    Case("ring-fifo", "ring", "fifo", "before", 4, 1, ("pipe-no-writer",)),
    Case("ring-service", "ring", "service", "first", 2, 3, _SERVICES, 2),
    Case("ring-worker", "ring", "worker", "collective", 4, 2, _DEAD),
    Case("ring-condition", "ring", "condition", "end", 2, 1, _GIVER),
    Case("ring-peer", "ring", "peer", "between", 4, 6, _SERVICES, 2),
    Case("ring-input", "ring", "input", "first", 2, 1, _FILTER),
    Case("ring-thread", "ring", "thread", "between", 4, 0, _GIVER),
    Case("ring-leaves", "ring", "leaves", "before", 2, 2, ("rank-left",), 2),
    Case("ring-missing", "ring", "missing", "", 4, 5, ("rank-never-started",), 2),
    Case("ring-marker", "ring", "marker", "end", 4, 3, _MARKERS),
    Case("ring-killed", "ring", "killed", "before", 4, 2, _LOST, outcomes=_ANY),
    Case("store-order", "store_steps", "order", "end", 2, 1, _OWN_ORDER),
    Case("store-condition", "store_steps", "condition", "rendezvous", 4, 3, _GIVER),
    Case("store-peer", "store_steps", "peer", "before", 2, 3, _SERVICES, 2),
    Case("store-flock", "store_steps", "flock", "between", 4, 2, ("file-lock-held",)),
    Case("store-worker", "store_steps", "worker", "end", 2, 1, _DEAD, 2),
    Case("store-missing", "store_steps", "missing", "", 2, 2, ("rank-never-started",), 2),
    Case("store-stopped", "store_steps", "stopped", "rendezvous", 4, 1, ("stopped",)),
    Case("gloo-order", "train", "order", "between", 2, 1, _OWN_ORDER, agents=True),
    Case("gloo-input", "train", "input", "first", 2, 2, _FILTER, 2, agents=True),
    Case("gloo-condition", "train", "condition", "import", 2, 1, _GIVER, agents=True),
    Case("gloo-leaves", "train", "leaves", "before", 2, 3, ("rank-left",), 2, agents=True),
    Case(
        *("gloo-killed", "train", "killed", "between", 4, 2, _LOST),
        agents=True,
        outcomes=("crash",),
    ),
    Case("gloo-peer", "train", "peer", "end", 4, 1, _SERVICES, agents=True),
    Case("gloo-in-reduce", "train", "stopped", "collective", 2, 0, ("stopped",), 2, agents=True),
    Case("gloo-marker", "train", "marker", "first", 4, 3, _MARKERS, agents=True),
)

CASES += OWN_CASES + LATER_CASES + LAUNCHED_CASES + UNLIKE_CASES + FURTHER_CASES
CASES += CLUSTER_CASES


@dataclass
class Told:
    """What one way of asking said of a case."""

    way: str
    verdict: dict[str, Any]
    printed: int = 1
    seconds: float = 0.0
    said: str = field(default="", repr=False)


class Job:
    """A case under way on its hosts; one more host is the world outside of it."""

    def __init__(self, case: Case, made: Hosts, before: list[str], **environ: str) -> None:
        """Start it; `before` is put before the command of each host."""
        self.case, self.made = case, made
        self.nodes, self.outside = made.all[: case.nodes], made.all[-1]
        self._started: list[subprocess.Popen[str]] = []
        self._begin_world()
        self._commands: list[subprocess.Popen[str]] = []
        for number, host in enumerate(self.nodes):
            if number != case.absent and not (number and isinstance(case, OwnCase) and case.by):
                apart = isinstance(case, OwnCase) and number in case.unwatched
                words = [*([] if apart else before), *self._words(number)]
                if isinstance(case, OwnCase) and case.late[0] == number:
                    words = ["sh", "-c", f'sleep {case.late[1]}; exec "$@"', "sh", *words]
                self._start(host, words, self._environ(number) | environ)

    def _begin_world(self) -> None:
        """Start what is outside of the job: a service that is silent, a holder of a lock."""
        case, quiet = self.case, {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        words = [sys.executable, "-c", _SERVICE]
        self._started.append(self.outside.start(words, **quiet))
        for number, host in enumerate(self.nodes):
            programs = PROGRAMS.glob("*.py")
            if isinstance(case, OwnCase):
                programs = PROGRAMS.glob(f"own/{case.program}.py")
            for file in programs:
                shutil.copy(file, host.inside_folder)
            if case.kind == "flock" and number == case.culprit // case.a_node:
                holds = ["flock", "/tmp/cache.lock", "sleep", "100000"]
                self._started.append(host.start(holds, folder="/tmp", **quiet))
        if isinstance(case, OwnCase):
            self._prepare(case, quiet)
        time.sleep(1.0)

    def _prepare(self, case: OwnCase, quiet: dict[str, Any]) -> None:
        """Run what comes before the job on its hosts, and start what goes on beside it."""
        for number, command in case.before:
            host, words = self.made[number], ["sh", "-c", command]
            if command.endswith("&"):
                self._started.append(host.start([*words[:2], command[:-1]], folder="/tmp", **quiet))
                continue
            done = host.run(words)
            if done.returncode:
                raise RuntimeError(f"{case.name}: {command}: {done.stderr}")

    def _words(self, number: int) -> list[str]:
        case, program = self.case, f"{self.case.program}.py"
        if isinstance(case, OwnCase):
            command = case.commands.get(number, case.command).replace("$NODE", str(number))
            first, *others = command.replace("$PYTHON", sys.executable).split()
            own = SCRIPTS / first
            return [str(own) if own.exists() else first, *others]
        if not case.agents:
            starts = ["start.py"] if case.a_node > 1 else []
            return [sys.executable, *starts, program]
        agent = [str(SCRIPTS / "torchrun"), f"--nnodes={case.nodes}"]
        agent += [f"--nproc-per-node={case.a_node}"]
        if case.c10d:
            agent += ["--rdzv-backend=c10d", "--rdzv-endpoint=n1:29400", "--rdzv-id=job"]
        else:
            agent += [f"--node-rank={number}", "--master-addr=n1", "--master-port=29400"]
        return [*agent, program]

    def _environ(self, number: int) -> dict[str, str]:
        case = self.case
        fault = {"FAULT_RANK": str(case.culprit), "FAULT_KIND": case.kind}
        fault |= {"FAULT_PLACE": case.place, "FAULT_SERVICE": f"{self.outside.name}:9300"}
        if isinstance(case, OwnCase):
            fault = {"OMP_NUM_THREADS": "1"}
        if case.agents or (isinstance(case, OwnCase) and case.by):  # it tells its ranks itself
            return fault | self._own_environ(number) | {"OMP_NUM_THREADS": "1"}
        return {
            **fault,
            **({"RANK": str(number), "LOCAL_RANK": "0"} if case.a_node == 1 else {}),
            **{"WORLD_SIZE": str(case.nodes * case.a_node), "GROUP_RANK": str(number)},
            "LOCAL_WORLD_SIZE": str(case.a_node),
            **{"GROUP_WORLD_SIZE": str(case.nodes), "MASTER_ADDR": "n1", "MASTER_PORT": "29400"},
            **self._own_environ(number),
        }

    def _own_environ(self, number: int) -> dict[str, str]:
        return self.case.environ.get(number, {}) if isinstance(self.case, OwnCase) else {}

    def _start(self, host: Host, words: list[str], environ: dict[str, str]) -> None:
        with self._log(host).open("w") as log:
            streams: dict[str, Any] = {"stdout": log, "stderr": log}
            self._commands.append(host.start(words, environ, **streams))
        self._started.append(self._commands[-1])

    def has_ended(self) -> bool:
        """Return whether the commands of all hosts are over."""
        return all(one.poll() is not None for one in self._commands)

    def statuses(self) -> list[int | None]:
        """Return how the commands of the hosts ended."""
        return [one.poll() for one in self._commands]

    def _log(self, host: Host) -> Path:
        return self.made.root / f"said-{host.name}"

    def said(self) -> str:
        """Return what was printed on all hosts."""
        logs = [self._log(host) for host in self.nodes if self._log(host).exists()]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for log in logs)

    def headings(self) -> list[str]:
        """Return the first line of each verdict that was printed on any host."""
        return [line for line in self.said().splitlines() if line.startswith(HEADINGS)]

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the verdicts of the hosts, in their order."""
        found = []
        for host in self.nodes:
            for path in sorted((host.inside_folder / "run").glob("**/verdict.json")):
                with contextlib.suppress(ValueError):
                    found.append(json.loads(path.read_text()))
        return found

    def wait_until_still(self) -> None:
        """Wait until its processes take no time of a core for three seconds."""
        end, still, last = time.monotonic() + LIMIT, 0, -1.0
        while still < 3 and time.monotonic() < end:
            time.sleep(1.0)
            used = sum(_seconds_of_cpu(pid) for host in self.nodes for pid in host.processes())
            still = still + 1 if abs(used - last) < 0.1 and used > 0.1 else 0
            last = used
        time.sleep(1.0)

    def end(self) -> None:
        """End it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for one in self._started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, number)
            for one in self._started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.wait(20)


def _seconds_of_cpu(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


# ---- the three ways ------------------------------------------------------------------------------


def start_services(case: Case, made: Hosts, has_ssh: bool) -> dict[str, str]:
    """Start what a command reaches the other hosts by; return what it needs in its environment."""
    by = case.by if isinstance(case, OwnCase) else ""
    if by in ("ssh", "pdsh") and not has_ssh:
        hosts_services.start_ssh(made)
    if by == "pdsh":
        folder = hosts_services.write_pdsh(made)
        return {"PATH": f"{folder}:{SCRIPTS}:{os.environ['PATH']}"}
    return hosts_services.start_slurm(made, made.all[: case.nodes]) if by == "slurm" else {}


def watch(case: Case, made: Hosts, apart: bool) -> list[Told]:
    """Start a case watched; return what it said, and what its files say together."""
    before = [HANGBISECT, "run", "--run-dir", "run", "--stall", str(STALL)]
    before += ["--timeout", "launcher=8", "--on-hang", "report", "--"]
    joins = {"HANGBISECT_NODES": "off"} if apart else {"HANGBISECT_TOKEN": TOKEN}
    joins |= start_services(case, made, has_ssh=False)
    began = time.monotonic()
    job = Job(case, made, before, **joins)
    there = case.nodes - (case.absent >= 0)
    end = began + LIMIT
    while time.monotonic() < end and not (
        job.has_ended()
        if is_healthy(case)
        else job.headings() and (not apart or len(job.verdicts()) >= there)
    ):
        time.sleep(0.25)
    seconds = time.monotonic() - began
    time.sleep(SETTLES)
    verdicts, headings = job.verdicts(), job.headings()
    first = next((one for one in verdicts if one["outcome"] != "ok"), {})
    said = job.said()
    if is_healthy(case):
        first = first or (verdicts[-1] if verdicts else {})
        said += "".join(f"\nstatus {status}" for status in job.statuses())
    told = [Told("run", first, len(headings), seconds, said)]
    job.end()
    told.append(merge(job))
    return told


def merge(job: Job) -> Told:
    """Return what the run folders of the hosts say together."""
    folders = [host.inside_folder / "run" for host in job.nodes]
    words = [HANGBISECT, "merge", "--json", *(str(one) for one in folders if one.is_dir())]
    began = time.monotonic()
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=jobs.clean_environ()
    )
    said = f"{job.said()}\n{done.stdout}\n{done.stderr}\nstatus {done.returncode}"
    return Told("files", _read(done.stdout), 1, time.monotonic() - began, said)


def attach(case: Case, made: Hosts) -> Told:
    """Start a case without us, let it stand still, and ask all its hosts."""
    job = Job(case, made, [], **start_services(case, made, has_ssh=True))
    if isinstance(case, OwnCase) and case.ask_at:
        time.sleep(case.ask_at)
    else:
        job.wait_until_still()
    names = ",".join(h.name for n, h in enumerate(job.nodes) if n != case.absent)
    words = [HANGBISECT, "attach", "--hosts", names, "--json", "--run-dir", "asked"]
    began = time.monotonic()
    done = job.outside.run(words, limit=120.0)
    seconds = time.monotonic() - began
    file = job.outside.inside_folder / "asked" / "verdict.json"
    verdict = _read(file.read_text()) if file.exists() else {}
    said = f"{job.said()}\n--- attach\n{done.stdout}\n{done.stderr}\nstatus {done.returncode}"
    job.end()
    return Told("attach", verdict, 1, seconds, said)


def _read(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        return dict(found.get("verdict", found)) if isinstance(found, dict) else {}
    return {}


# ---- what is right -------------------------------------------------------------------------------


def find_faults(case: Case, told: Told) -> list[str]:
    """Return what is wrong with an answer, in words; [] if it is right."""
    verdict = told.verdict
    if not verdict:
        return ["no verdict"]
    if is_healthy(case):
        return find_false_alarms(told)
    cause = (verdict["cause"] or {}).get("id", "")
    wrong = []
    if verdict["outcome"] not in case.outcomes:
        wrong.append(f"outcome {verdict['outcome']}")
    wrong += find_wrong_blame(case, told)
    right = case.causes
    if told.way == "attach" and case.kind in ("leaves", "killed"):
        # How it ended was told to its parent alone, and that is over, or has forgotten it.
        right = (*right, "rank-never-started")  # which says: or it is gone without a trace
    if told.way == "attach" and isinstance(case, OwnCase):
        right = (*right, *case.causes_by_stacks)
    if cause not in right:
        wrong.append(f"cause {cause or 'none'}")
    if case.says and not re.search(case.says, json.dumps(verdict)):
        wrong.append(f"does not say {case.says}")
    if isinstance(case, OwnCase) and case.at and not re.search(case.at, _place(verdict)):
        wrong.append(f"at {_place(verdict)}")
    if told.printed != 1:
        wrong.append(f"said {told.printed} times")
    return wrong


def _place(verdict: dict[str, Any]) -> str:
    """Return where who is to blame stands: the call, and its frame."""
    return " ".join(str(verdict.get(name) or "") for name in ("call", "frame"))


def is_healthy(case: Case) -> bool:
    """Return whether nothing hangs in a case."""
    return isinstance(case, OwnCase) and case.healthy


def find_wrong_blame(case: Case, told: Told) -> list[str]:
    """Return what is wrong about whom an answer blames."""
    verdict = told.verdict
    blamed = verdict["ranks"]["culprit"]
    hosts = {one["host"] for one in verdict["where"] if one["rank"] in blamed}
    if isinstance(case, OwnCase):
        if tuple(blamed) in case.or_blamed:
            return []
        if told.way == "attach" and tuple(blamed) in case.by_stacks:
            return []
        if case.on_host and len(blamed) <= 1:
            # A launcher that has no rank yet is named by what is said of its host.
            rest = json.dumps({k: v for k, v in verdict.items() if k not in ("nodes", "job")})
            right = hosts == {case.on_host} if blamed else f"{case.on_host}" in rest
            return [] if right else [f"host {sorted(hosts)} for {case.on_host}"]
    culprit = [] if case.culprit < 0 else [case.culprit]
    if blamed != culprit:
        return [f"rank {blamed} for {culprit}"]
    host = f"n{case.culprit // case.a_node + 1}"
    return [f"host {sorted(hosts)} for {host}"] if culprit and hosts != {host} else []


def find_false_alarms(told: Told) -> list[str]:
    """Return what is wrong with what was said of a healthy job."""
    wrong = []
    if told.verdict["outcome"] == "hang" or re.search(r"^HANG  ", told.said, re.MULTILINE):
        wrong.append("called a hang")
    if told.way == "run" and told.verdict["outcome"] != "ok":
        wrong.append(f"ends as {told.verdict['outcome']}")
    ended = re.findall(r"^status (-?\d+)$", told.said, re.MULTILINE)
    if told.way == "run" and any(status != "0" for status in ended):
        wrong.append(f"status {' '.join(ended)}")
    return wrong


def try_case(case: Case, ways: list[str], apart: bool) -> list[Told]:
    """Return what is said of a case by each of the ways."""
    told: list[Told] = []
    if {"run", "files"} & {*ways}:
        with Hosts(case.nodes + 1, shared=False) as made:
            told += [one for one in watch(case, made, apart) if one.way in ways]
    # A job that has ended is not there to be asked: torchrun ends what is left of it.
    if "attach" in ways and not (case.agents and case.kind in ("raises", "killed")):
        with Hosts(case.nodes + 1, shared=False) as made:
            hosts_services.start_ssh(made)
            told.append(attach(case, made))
    return told


_PARTS = {"right": "", "rank and host": "rank |host ", "cause": "cause ", "one verdict": "said "}


def main() -> int:
    """Try the cases; return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--by", default=",".join(WAYS))
    parser.add_argument("--apart", action="store_true", help="monitors that do not talk")
    parser.add_argument("--keep", type=Path, help="where to leave what was said")
    options = parser.parse_args()
    jobs.heed_signals()
    if why_not := missing() or hosts_services.ssh_missing():
        print(why_not)
        return 2
    chosen = [one for one in CASES if not options.names or one.name in options.names]
    faults: dict[str, list[list[str]]] = {}
    for case in chosen:
        for told in try_case(case, options.by.split(","), options.apart):
            wrong = find_faults(case, told)
            faults.setdefault(told.way, []).append(wrong)
            row = (case.name, told.way, f"{told.seconds:.1f}", "; ".join(wrong) or "right")
            print(jobs.wide(row, (20, 7, 6, 0)), flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                text = f"{json.dumps(told.verdict, indent=1)}\n{told.said}"
                (options.keep / f"{case.name}.{told.way}").write_text(text)
    for way, found in faults.items():
        parts = {
            "right": "",
            "rank and host": "rank |host ",
            "cause": "cause ",
            "one verdict": "said ",
        }
        shares = [f"{name} {_share(found, words)}" for name, words in parts.items()]
        print(f"{way}: {', '.join(shares)}")
    return int(any(wrong for found in faults.values() for wrong in found))


def _share(found: list[list[str]], words: str) -> str:
    """Return how many answers have none of the faults that begin with these words, of how many."""
    begins = ("no verdict", *words.split("|")) if words else ("",)
    right = sum(not any(fault.startswith(begins) for fault in wrong) for wrong in found)
    return f"{right} of {len(found)}"


if __name__ == "__main__":
    sys.exit(main())
