"""Whether each host that lives has a right verdict, whatever becomes of the others and whenever.

    python benchmarks/hosts_in_trouble.py [--troubles cut,halves,death,lead-death,clocks,delay,wall]
                                          [--moments start,joined,training,hanging,looking]
                                          [--rounds 1] [--jobs 2] [--keep DIR]

One rank on each of four hosts without a shared folder; all meet over sockets, at every step. Then
one host is cut off, two are cut off from the other two, one dies, or that of rank 0 does; with
`clocks` nothing happens but that monotonic clocks are an hour apart; with `delay` what one host
sends to another one takes 200 ms from then on, and as long back; with `wall` the wall clock of one
host goes ahead by 3 s, which the verdict is to say. It happens as the job starts,
as the hosts are joined, in training, after rank 1 has begun to hang, or while that is looked at.

Right, on each host that lives: a verdict comes; it names each host that it does not see, once
that had been heard of; who is blamed hangs really, or nobody is; no rank is ended by us; and of
hosts that see each other one alone prints it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from host_delays import prepare_relay, relay
from hosts import Hosts, missing
from injected_faults import CLOCK_SOURCE
from joined_hosts import HEADINGS, JOINED, Job

TROUBLES = ("cut", "halves", "death", "lead-death", "clocks", "delay", "wall")
HEALTHY = ("clocks", "delay", "wall")  # no host is lost
MOMENTS = ("start", "joined", "training", "hanging", "looking")
HOSTS = 4
CULPRIT = 1  # the rank that hangs, where one does
ANOTHER = 3  # the host that is lost, where it is not that of rank 0
APART = 3600.0  # seconds between monotonic clocks
DELAY = 0.1  # seconds at each host: 0.2 from one to another
LATE = "/tmp/late"  # on each host: from then on
WALL_AHEAD = 3  # seconds
LIMIT = 150.0  # seconds for the verdicts
SETTLES = 6.0  # seconds in which another verdict would be printed


def wait_for(moment: str, job: Job, made: Hosts, hangs: bool) -> None:
    """Wait until a moment has come, before the verdict of a job that `hangs` from its third step
    on; raises TimeoutError.
    """
    if moment == "start":
        time.sleep(0.5)
        return
    made.until(lambda: JOINED in job.said(), "the hosts are not joined", LIMIT)
    if moment == "training":
        time.sleep(1.0 if hangs else 6.0)
    elif moment == "hanging":
        time.sleep(2.0)
    elif moment == "looking":
        made.until(lambda: ": looking" in job.said(), "nobody looks", LIMIT)


def make(trouble: str, made: Hosts) -> tuple[list[int], list[list[int]]]:
    """Make a trouble; return the hosts that are dead, and the groups that see each other."""
    hosts = made.all
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
    if trouble == "delay":
        for one in hosts:
            (one.root / LATE.lstrip("/")).touch()
    elif trouble == "wall":
        (hosts[ANOTHER].root / "tmp/job/clock").write_text(f"{WALL_AHEAD}\n")
    return [], [[*range(HOSTS)]]


def prepare(trouble: str, made: Hosts) -> dict[str, str]:
    """Prepare the hosts for a trouble; return variables of the job."""
    if trouble == "delay":
        for number, host in enumerate(made, 1):
            done = host.run(["sh", "-c", prepare_relay(number)], folder="/")
            if done.returncode:
                raise RuntimeError(done.stderr)
            made.daemon(host, "sh", "-c", f"exec {relay(DELAY, LATE)}")
    if trouble != "wall":
        return {}
    for host in made:
        (host.root / "tmp/job").mkdir()  # where the library looks: HOME/../job/clock
        source = host.inside_folder / "clock.c"
        source.write_text(CLOCK_SOURCE)
        words = ["gcc", "-shared", "-fPIC", "-O2", source, "-o", source.with_suffix(".so"), "-ldl"]
        subprocess.run(words, check=True)
    return {"LD_PRELOAD": f"{made.folder}/clock.so", "HOME": "/tmp/job"}


def find_faults(job: Job, hangs: bool, groups: list[list[int]], moment: str) -> list[str]:
    """Return in words what is not right."""
    faults = []
    culprits = ([], [CULPRIT]) if hangs else ([],)
    for group in groups:
        printed = 0
        for number in group:
            name, found = f"n{number + 1}", job.verdict(number)
            printed += sum(line.startswith(HEADINGS) for line in job.said_on(number).splitlines())
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
        # Whom it had not heard of as it lost its lead nobody can join.
        most = len(group) if 0 not in group and moment == "start" else 1
        if printed > most:
            faults.append(f"{printed} verdicts of {len(group)} hosts that see each other")
    return faults


def measure(trouble: str, moment: str, keep: Path | None, number: int) -> tuple[list[str], float]:
    """Return what is not right in one job, and the seconds from the trouble to all verdicts."""
    clocks = [APART * n for n in range(HOSTS)] if trouble == "clocks" else ()
    with Hosts(HOSTS, shared=False, clocks=clocks) as made:
        hangs = moment in ("hanging", "looking") or trouble in HEALTHY
        variables = prepare(trouble, made)
        job = Job(made, CULPRIT if hangs else -1, "fifo", "--on-hang", "end", **variables)
        try:
            wait_for(moment, job, made, hangs)
            dead, groups = make(trouble, made)
            began = time.monotonic()
            lives = [n for n in range(HOSTS) if n not in dead]
            with contextlib.suppress(TimeoutError):
                made.until(lambda: all(map(job.verdict, lives)), "verdicts are missing", LIMIT)
            seconds = time.monotonic() - began
            time.sleep(SETTLES)
            faults = find_faults(job, hangs, groups, moment)
            if trouble == "wall" and not any("behind that of" in n for n in notes(job)):
                faults.append("that clocks are apart is not said")
        except TimeoutError as error:
            faults, seconds = [str(error)], LIMIT
        job.end()
        if keep and faults:
            folder = keep / f"{trouble}-{moment}-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for n in range(HOSTS):
                (folder / f"n{n + 1}.log").write_text(job.said_on(n))
                (folder / f"n{n + 1}.json").write_text(json.dumps(job.verdict(n), indent=1))
    return faults, seconds


def notes(job: Job) -> list[str]:
    """Return the notes of the verdict of rank 0's host."""
    return [*job.verdict(0).get("notes", ())]


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
