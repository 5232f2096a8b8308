"""Healthy starts on several hosts: none is hung, ended or judged by who saw only a part of it.

    python benchmarks/healthy_hosts.py [WAY ...] [--hosts 2] [--starts 100]

WAY is how the ranks are started: torchrun-static, torchrun-c10d, srun, srun-login (from a host that
runs none), mpirun-node, mpirun-slot, deepspeed; all by default. Hosts are namespaces (hosts.py),
two ranks on each. The starts take turns: `pipeline` walks ours until the logs directory, `safe` the
same with what lets one rank go first, `script` computes for a while without any library, `torch`
makes a gloo group and reduces. Each is started plainly (a script then is without us), with one
`hangbisect run --on-hang end` around its launcher, or with one for each task; quickly, or with
ranks and hosts that come seconds after one another, later than --stall.

What counts is that each command ends with status 0, that nothing is called HANG, that no
verdict is other than `ok`, that each verdict speaks for ranks of one host, that all together speak
for all ranks, and that nothing of the job is left on any host. --seed says which starts these are.

[--seed 0] [--keep DIR]
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hosts
import hosts_services
import jobs
from hosts import Host, Hosts

RANKS = 2  # on each host
STALL = 4.0
LIMIT = 90.0  # seconds for a start
SCRIPTS = Path(sys.executable).parent
WAYS = (
    *("torchrun-static", "torchrun-c10d", "srun", "srun-login"),
    *("mpirun-node", "mpirun-slot", "deepspeed"),
)
PROGRAMS = ("pipeline", "safe", "script", "torch")
AROUND = ("plain", "run", "each task")
_OURS = ("-m", "bisect", "--until", "logs_directory", "--stall", str(STALL), "--run-dir", "run")
_SAFE = (
    *("--make-logs-dir", "rank0", "--hub", "rank0-first", "--num-workers", "0"),
    *("--wandb", "off", "--callbacks", "none", "--strategy", "ddp"),
)
_WORKS = """\
import hashlib, sys, time
end = time.monotonic() + float(sys.argv[1])
def one(name):
    for _ in range(20):
        getattr(hashlib, name)(bytes(100_000)).hexdigest()
while time.monotonic() < end:
    for name in ("sha256", "sha1", "md5", "sha512"):
        one(name)
    time.sleep(0.02)
"""
_REDUCES = """\
import os
for name, other in (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"),
                    ("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS")):
    if other in os.environ:
        os.environ.setdefault(name, os.environ[other])
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(1))
dist.barrier()
dist.destroy_process_group()
"""
# DeepSpeed puts an option of its own in front of what a rank runs.
_WITHOUT = """\
#!/bin/sh
case "$1" in --local_rank=*) shift ;; esac
exec "$@"
"""


@dataclass(frozen=True)
class Start:
    """A start: what, how, and how long after one another its ranks and hosts come."""

    way: str
    program: str
    around: str
    late: float  # seconds for the last rank of a host
    apart: float  # seconds between two launchers, where each host has one
    port: int


@dataclass
class Outcome:
    """What was wrong with a start: words, nothing if it was well."""

    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    said: str = ""


class Places:
    """The hosts, with what launchers need."""

    def __init__(self, count: int, ways: Sequence[str]) -> None:
        """The last host is one to log in to, if a way wants one."""
        self.login = "srun-login" in ways
        self.made = Hosts(count + self.login)
        self.nodes = self.made.all[:count]
        self.slurm: dict[str, str] = {}
        try:
            if any(way.startswith(("mpirun", "deepspeed")) for way in ways):
                hosts_services.start_ssh(self.made)
            if any(way.startswith("srun") for way in ways):
                self.slurm = hosts_services.start_slurm(self.made, self.nodes)
        except BaseException:
            self.made.end()
            raise
        self.pdsh = hosts_services.write_pdsh(self.made)


def try_it(start: Start, places: Places, keep: Path | None) -> Outcome:
    """Start it, wait for its end, and say what was wrong."""
    made = places.made
    folder = made.folder / f"start-{start.port}"
    folder.mkdir()
    (folder / "works.py").write_text(_WORKS)
    (folder / "reduces.py").write_text(_REDUCES)
    (folder / "without.sh").write_text(_WITHOUT)
    (folder / "without.sh").chmod(0o755)
    (folder / "late.sh").write_text(
        'sleep "$(python3 -c "import os, random, sys; print(random.random() * float(sys.argv[1]))" '
        f'"{start.late}")"\nexec "$@"\n'
    )
    began = time.monotonic()
    started = []
    for host, words, environ in commands(start, places, folder):
        if started:
            time.sleep(start.apart)
        log = (folder / f"said-{len(started)}").open("w")
        with log:
            streams = {"stdout": log, "stderr": log}
            started.append(host.start(words, environ, folder, **streams))  # type: ignore[arg-type]
    outcome = Outcome()
    for one in started:
        try:
            status = one.wait(max(1.0, began + LIMIT - time.monotonic()))
            outcome.wrong += [f"status {status}"] if status else []
        except Exception:
            outcome.wrong.append("hung")
            break
    outcome.seconds = time.monotonic() - began
    outcome.said = "\n".join(path.read_text() for path in sorted(folder.glob("said-*")))
    outcome.wrong += [
        word for word in ("HANG", "SILENT  ", "The watch failed") if word in outcome.said
    ]
    outcome.wrong += wrong_verdicts(start, folder / "run", len(places.nodes))
    outcome.wrong += left_behind(places)
    for one in started:
        if one.poll() is None:
            jobs.os.killpg(one.pid, jobs.signal.SIGKILL)
            one.wait()
    if outcome.wrong and keep:
        shutil.copytree(folder, keep / folder.name, dirs_exist_ok=True)
    shutil.rmtree(folder)
    return outcome


def commands(
    start: Start, places: Places, folder: Path
) -> list[tuple[Host, list[str], dict[str, str]]]:
    """Return what to start, on which host, with what in its environment."""
    nodes, made = places.nodes, places.made
    run = [str(SCRIPTS / "hangbisect"), "run", "--stall", str(STALL), "--on-hang", "end"]
    run += ["--timeout", "launcher=30", "--run-dir", "run", "--"]
    around = run if start.around == "run" else []
    task = [*(run if start.around == "each task" else []), *_task(start)]
    world = str(len(nodes) * RANKS)
    master = {"MASTER_ADDR": "n1", "MASTER_PORT": str(start.port)}
    if start.way.startswith("torchrun"):
        words = [str(SCRIPTS / "torchrun"), f"--nnodes={len(nodes)}", f"--nproc-per-node={RANKS}"]
        if start.way == "torchrun-c10d":
            each = [["--rdzv-backend=c10d", "--rdzv-id=1", f"--rdzv-endpoint=n1:{start.port}"]]
            each *= len(nodes)
        else:
            meet = ["--master-addr=n1", f"--master-port={start.port}"]
            each = [[*meet, f"--node-rank={number}"] for number in range(len(nodes))]
        return [
            (host, [*around, *words, *more, "--no-python", *task], {})
            for host, more in zip(nodes, each, strict=True)
        ]
    if start.way.startswith("srun"):
        host = made.all[-1] if start.way == "srun-login" else nodes[0]
        words = ["srun", f"-N{len(nodes)}", f"--ntasks-per-node={RANKS}", *task]
        return [(host, [*around, *words], {**places.slurm, **master})]
    file = folder / "hosts"
    file.write_text("".join(f"{host.name} slots={RANKS}\n" for host in nodes))
    if start.way == "deepspeed":
        path = f"{places.pdsh}:{SCRIPTS}:{jobs.os.environ['PATH']}"
        words = [str(SCRIPTS / "deepspeed"), f"--hostfile={file}", f"--master_port={start.port}"]
        return [(nodes[0], [*around, *words, "--no_python", "./without.sh", *task], {"PATH": path})]
    by = start.way.partition("-")[2]
    words = ["mpirun", "--allow-run-as-root", "--hostfile", str(file), "--map-by", by, "-np", world]
    variables = [word for name, value in master.items() for word in ("-x", f"{name}={value}")]
    return [(nodes[0], [*around, *words, *variables, *task], {})]


def _task(start: Start) -> list[str]:
    """Return what each rank is."""
    programs = {
        "pipeline": _OURS,
        "safe": (*_OURS, *_SAFE),
        "script": ("works.py", "6"),
        "torch": ("reduces.py",),
    }
    late = ["sh", "late.sh"] if start.late else []
    return [*late, sys.executable, *programs[start.program]]


def wrong_verdicts(start: Start, run_dir: Path, nodes: int) -> list[str]:
    """Return what is wrong with the verdicts of a start, if there are to be any."""
    found = [json.loads(path.read_text()) for path in sorted(run_dir.glob("**/verdict.json"))]
    wrong = [f"verdict {one['outcome']}" for one in found if one["outcome"] != "ok"]
    seen = [one.get("seen_ranks", []) for one in found]
    wrong += [f"one verdict for {ranks}" for ranks in seen if len(ranks) > RANKS]
    ours = start.program in ("pipeline", "safe")
    everybody = sorted(rank for ranks in seen for rank in ranks)
    if ours and everybody != list(range(nodes * RANKS)):
        wrong.append(f"verdicts for {seen}")
    return wrong


def left_behind(places: Places) -> list[str]:
    """Return what is left on any host, a few seconds after its end."""
    end = time.monotonic() + 8
    while time.monotonic() < end:
        left = [f"{host.name}: {one[:100]}" for host in places.made for one in host.left()]
        if not left:
            return []
        time.sleep(0.1)
    return [f"left {one}" for one in left]


def starts(ways: Sequence[str], chance: random.Random) -> list[Start]:
    """Return ever more starts, all kinds in turn: an endless list, by islice."""
    ports = itertools.count(20000)
    kinds = [
        (way, program, around)
        for program in PROGRAMS
        for around in AROUND
        for way in ways
        if not (around == "each task" and way.startswith(("torchrun", "deepspeed")))
        and not (program == "script" and around == "plain")
    ]
    chance.shuffle(kinds)
    return [
        Start(
            *kind,
            late=chance.choice([0.0, 0.0, 2.0, 8.0]),
            apart=chance.choice([0.0, 0.0, 1.0, 6.0]),
            port=next(ports),
        )
        for kind in itertools.islice(itertools.cycle(kinds), 10_000)
    ]


def main() -> int:
    """Try them; return 1 if one was not well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", choices=PROGRAMS)
    parser.add_argument("--around", choices=AROUND)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    jobs.heed_signals()
    ways = options.ways or WAYS
    if why_not := hosts.missing():
        print(why_not)
        return 2
    chosen = [
        start
        for start in starts(ways, random.Random(options.seed))
        if options.program in (None, start.program) and options.around in (None, start.around)
    ]
    places = Places(options.hosts, ways)
    tried: Counter[tuple[str, str]] = Counter()
    bad: Counter[tuple[str, str]] = Counter()
    try:
        for start in chosen[: options.starts]:
            outcome = try_it(start, places, options.keep)
            kind = start.way, start.around
            tried[kind] += 1
            bad[kind] += bool(outcome.wrong)
            row = (start.way, start.program, start.around, start.late, start.apart, outcome.seconds)
            line = jobs.wide(row, (15, 8, 9, 4, 4, 6))
            print(f"{line}  {'; '.join(outcome.wrong) or 'well'}", flush=True)
    finally:
        places.made.end()
    print()
    for kind in sorted(tried):
        print(jobs.wide((*kind, tried[kind] - bad[kind], tried[kind]), (15, 9, 4, 4)))
    print(f"{sum(tried.values()) - sum(bad.values())} of {sum(tried.values())} starts were well")
    return int(sum(bad.values()) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
