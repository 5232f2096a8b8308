"""Whether each host that lives has a right verdict, whatever becomes of the others and whenever.

    python benchmarks/hosts_in_trouble.py [--troubles cut,halves,death,lead-death,clocks]
                                          [--moments start,joined,training,hanging,looking]
                                          [--rounds 1] [--jobs 2] [--keep DIR]

One rank on each of four hosts without a shared folder; all meet over sockets, at every step. Then
one host is cut off, two are cut off from the other two, one dies, or that of rank 0 does; with
`clocks` nothing happens but that monotonic clocks are an hour apart. It happens as the job starts,
as the hosts are joined, in training, after rank 1 has begun to hang, or while that is looked at.

Right, on each host that lives: a verdict comes; it names each host that it does not see, once
that had been heard of; who is blamed hangs really, or nobody is; no rank is ended by us; and of
hosts that see each other one alone prints it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts import Host, Hosts, missing
from joined_hosts import HEADINGS, MEETS, environ_of

TROUBLES = ("cut", "halves", "death", "lead-death", "clocks")
MOMENTS = ("start", "joined", "training", "hanging", "looking")
HOSTS = 4
CULPRIT = 1  # the rank that hangs, where one does
ANOTHER = 3  # the host that is lost, where it is not that of rank 0
APART = 3600.0  # seconds between monotonic clocks
LIMIT = 150.0  # seconds for the verdicts
SETTLES = 6.0  # seconds in which another verdict would be printed
HANGBISECT = str(Path(sys.executable).parent / "hangbisect")
RUN = (HANGBISECT, "run", "--run-dir", "run", "--stall", "4", "--on-hang", "end", "--")


@dataclass
class Job:
    """One rank on each host, watched."""

    made: Hosts
    hangs: bool
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> None:
        """Start all ranks."""
        words = ["meets.py", str(CULPRIT if self.hangs else -1), "fifo", "100000"]
        for number, host in enumerate(self.made.all):
            (host.inside_folder / "meets.py").write_text(MEETS)
            with self._log(number).open("w") as log:
                command = [*RUN, sys.executable, *words]
                environ = environ_of(number, HOSTS)
                self.started.append(host.start(command, environ, stdout=log, stderr=log))

    def said(self, number: int) -> str:
        """Return what was printed on a host."""
        return self._log(number).read_text(errors="replace")

    def is_said(self, words: str) -> bool:
        """Return whether it was printed on any host."""
        return any(words in self.said(number) for number in range(HOSTS))

    def verdict(self, number: int) -> dict[str, Any]:
        """Return the verdict in the folder of a host, {} while there is none."""
        for path in (self.made[number].inside_folder / "run").glob("**/verdict.json"):
            with contextlib.suppress(ValueError):
                return dict(json.loads(path.read_text()))
        return {}

    def end(self) -> None:
        """End it."""
        for one in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGTERM)
        for one in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(20)

    def _log(self, number: int) -> Path:
        return self.made.root / f"said-{number}"


def wait_for(moment: str, job: Job) -> None:
    """Wait until a moment has come; raises TimeoutError."""
    if moment == "start":
        time.sleep(0.5)
        return
    until(lambda: job.is_said("one verdict on all"), "the hosts are joined")
    if moment == "training":
        time.sleep(6.0)
    elif moment == "hanging":
        time.sleep(2.0)
    elif moment == "looking":
        until(lambda: job.is_said(": looking"), "somebody looks")


def until(done: Callable[[], bool], what: str) -> None:
    """Wait until something is so; raises TimeoutError."""
    end = time.monotonic() + LIMIT
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"in vain: {what}")
        time.sleep(0.1)


def make(trouble: str, made: Hosts) -> tuple[list[int], list[list[int]]]:
    """Make a trouble; return the hosts that are dead, and the groups that see each other."""
    hosts: Sequence[Host] = made.all
    if trouble == "cut":
        made.cut(hosts[ANOTHER])
        return [], [[0, 1, 2], [ANOTHER]]
    if trouble == "halves":
        for one in hosts[2:]:
            made.cut(one, *hosts[:2])
        return [], [[0, 1], [2, 3]]
    if trouble in ("death", "lead-death"):
        dead = ANOTHER if trouble == "death" else 0
        hosts[dead].die()
        return [dead], [[n for n in range(HOSTS) if n != dead]]
    return [], [[*range(HOSTS)]]


def find_faults(job: Job, dead: list[int], groups: list[list[int]], moment: str) -> list[str]:
    """Return in words what is not right."""
    faults = []
    culprits = ([], [CULPRIT]) if job.hangs else ([],)
    for group in groups:
        printed = 0
        for number in group:
            name, found = f"n{number + 1}", job.verdict(number)
            printed += sum(line.startswith(HEADINGS) for line in job.said(number).splitlines())
            if not found:
                faults.append(f"{name}: no verdict")
                continue
            if found["ranks"]["culprit"] not in culprits:
                faults.append(f"{name}: blames {found['ranks']['culprit']}")
            words = json.dumps([found["nodes"], found["notes"], found["cause"], found["chain"]])
            unseen = [n for n in range(HOSTS) if n not in found["seen_ranks"]]
            unnamed = [f"n{n + 1}" for n in unseen if f'n{n + 1}"' not in words.replace(" ", '"')]
            if unnamed and moment != "start":
                faults.append(f"{name}: does not name {' '.join(unnamed)}")
            if job.started[number].poll() is not None and found["outcome"] != "hang":
                faults.append(f"{name}: its rank has ended")
        # Without its lead each judges for itself: there is no second one.
        most = len(group) if 0 not in group or moment == "start" else 1
        if printed > most:
            faults.append(f"{printed} verdicts of {len(group)} hosts that see each other")
    return faults


def measure(trouble: str, moment: str, keep: Path | None, number: int) -> tuple[list[str], float]:
    """Return what is not right in one job, and the seconds from the trouble to all verdicts."""
    clocks = [APART * n for n in range(HOSTS)] if trouble == "clocks" else ()
    with Hosts(HOSTS, shared=False, clocks=clocks) as made:
        hangs = moment in ("hanging", "looking") or trouble == "clocks"
        job = Job(made, hangs)
        job.start()
        try:
            wait_for(moment, job)
            dead, groups = make(trouble, made)
            began = time.monotonic()
            lives = [n for n in range(HOSTS) if n not in dead]
            with contextlib.suppress(TimeoutError):
                until(lambda: all(job.verdict(n) for n in lives), "verdicts")
            seconds = time.monotonic() - began
            time.sleep(SETTLES)
            faults = find_faults(job, dead, groups, moment)
        except TimeoutError as error:
            faults, seconds = [str(error)], LIMIT
        job.end()
        if keep and faults:
            folder = keep / f"{trouble}-{moment}-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for n in range(HOSTS):
                (folder / f"n{n + 1}.log").write_text(job.said(n))
                (folder / f"n{n + 1}.json").write_text(json.dumps(job.verdict(n), indent=1))
    return faults, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--troubles", default=",".join(TROUBLES))
    parser.add_argument("--moments", default=",".join(MOMENTS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    if why_not := missing():
        print(why_not)
        return 2
    cases = [
        (trouble, moment, number)
        for trouble in args.troubles.split(",")
        for moment in args.moments.split(",")
        for number in range(args.rounds)
    ]
    right = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        found = pool.map(lambda one: measure(one[0], one[1], args.keep, one[2]), cases)
        for (trouble, moment, _), (faults, seconds) in zip(cases, found, strict=True):
            right += not faults
            told = "; ".join(faults) or "right"
            print(f"{trouble:11} {moment:9} {seconds:6.1f} s  {told}", flush=True)
    print(f"{right} of {len(cases)} right")
    return 0 if right == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
