"""Jobs on several hosts: a healthy one is left alone, whatever any of us sees of it.

The hosts have processes, memory, names, networks and clocks of their own (benchmarks/hosts.py), so
no monitor sees more than its own ranks. Nearly all jobs end before torch is needed.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hosts_services
import pytest
from hosts import Hosts

from .hosts_here import DEADLINE, SCRIPTS, HostsHere, Started, torchrun, torchrun_c10d, verdicts

PYTHON = sys.executable
HANGBISECT = str(SCRIPTS / "hangbisect")
TORCHRUN = str(SCRIPTS / "torchrun")
SHORT = ("--until", "logs_directory", "--timeout", "6", "--stall", "5")
OURS = ("-m", "bisect", "--run-dir", "run", *SHORT)
SILENT = 40.0  # seconds: a healthy job here takes five; one that is hung by us never ends

# Rank 0 works, and the others work as well or wait for it; no library.
WORKS = """\
import hashlib, os, socket, sys, time
names = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
rank = next(int(os.environ[name]) for name in names if name in os.environ)
seconds, ranks_that_wait = float(sys.argv[1]), int(sys.argv[2])

def work():
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name in ("sha256", "sha1", "md5", "sha512"):
            compute(name)

def compute(name):
    for _ in range(20):
        getattr(hashlib, name)(bytes(100_000)).hexdigest()
    time.sleep(0.03)  # what it writes is what moves: it need not take a core
    log.write("done ")  # computing alone is not told from a spin
    log.flush()

log = open(f"work-{rank}.log", "w")
if rank == 0 and ranks_that_wait:
    listener = socket.create_server(("127.0.0.1", 9100))
if rank == 0 or not ranks_that_wait:
    work()
else:
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", 9100))
            break
        except OSError:
            time.sleep(0.1)
    assert connection.recv(2) == b"go"
if rank == 0:
    for _ in range(ranks_that_wait):
        listener.accept()[0].sendall(b"go")
print("rank", rank, "is done")
"""
# A group is made and used; then one rank of the second host does something else for ever.
TRAINS = """\
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(3):
    dist.all_reduce(torch.ones(1))
print("trained", flush=True)
if dist.get_rank() == 1:
    open("/tmp/fifo-here", "w").close()
    os.mkfifo("/tmp/fifo")
    open("/tmp/fifo").read()
dist.all_reduce(torch.ones(1))
"""


def shown(started: list[Started]) -> str:
    """Return all that was said."""
    return "\n".join(f"{one.host.name}:\n{one.said()[-4000:]}" for one in started)


def end_well(started: list[Started], made: Hosts, limit: float = SILENT) -> str:
    """Wait for all; assert that each ended well, and that nothing is left. Return what was said."""
    statuses = [one.end(limit) for one in started]
    said = shown(started)
    assert statuses == [0] * len(started), said
    assert "HANG" not in said
    # Agents of torchrun log one of their own where the host of their store is the first to leave.
    assert "Traceback" not in re.sub(r".* torch/distributed/elastic/\S+\] .*", "", said)
    made.until(lambda: not any(host.left() for host in made), f"left: {left(made)}")
    return said


def left(made: Hosts) -> dict[str, list[str]]:
    return {host.name: host.left() for host in made}


# ---- neither a wait of ours nor a verdict spans hosts --------------------------------------------


def test_nobody_waits_for_a_rank_of_another_host_and_each_verdict_claims_its_own(
    hosts_here: HostsHere,
) -> None:
    made = hosts_here.make(2)
    words = (*OURS, "--make-logs-dir", "rank0")
    started = hosts_here.start_each(made.all, lambda k: torchrun_c10d(2, 2, *words))
    said = end_well(started, made)
    found = verdicts(made.folder / "run")
    assert {one["outcome"] for one in found.values()} == {"ok"}
    assert "Waiting for the first rank of this node: logs directory" in said
    assert (made.folder / "run" / "node-1" / "logs").is_dir()
    assert sorted(one["seen_ranks"] for one in found.values()) == [[0, 1], [2, 3]]
    assert [one["world_size"] for one in found.values()] == [4, 4]
    assert "OK  startup, 2 of 4 ranks, those of this node" in said


# ---- the ranks of a node are those that its launcher counts --------------------------------------


@pytest.mark.parametrize("by", ["node", "slot"])
def test_ranks_that_mpirun_deals_out_in_turn_are_all_there(by: str, hosts_here: HostsHere) -> None:
    if why_not := hosts_services.ssh_missing():
        pytest.skip(why_not)
    made = hosts_here.make(2)
    hosts_services.start_ssh(made)
    words = [*mpirun(made, 4, by), PYTHON, *OURS]
    end_well([hosts_here.start(made[0], *words)], made)
    found = verdicts(made.folder / "run")
    assert {one["outcome"] for one in found.values()} == {"ok"}
    ranks = {"node": [[0, 2], [1, 3]], "slot": [[0, 1], [2, 3]]}[by]
    assert sorted(one["seen_ranks"] for one in found.values()) == ranks


def test_a_rank_that_never_starts_is_counted_and_gets_no_number(hosts_here: HostsHere) -> None:
    """What mpirun tells counts the ranks of a node and lists none: this one lacks 0."""
    if why_not := hosts_services.ssh_missing():
        pytest.skip(why_not)
    made = hosts_here.make(2)
    hosts_services.start_ssh(made)
    gone = 'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then exec env -i sleep 300; fi; exec "$@"'
    ours = (*OURS, "--timeout", "launcher=4")
    started = hosts_here.start(
        made[0], *mpirun(made, 4, "node"), "sh", "-c", gone, "sh", PYTHON, *ours
    )
    assert started.end() != 0
    found = verdicts(made.folder / "run")
    hung = [one for one in found.values() if one["outcome"] == "hang"]
    assert [one["seen_ranks"] for one in hung] == [[2]], shown([started])
    assert hung[0]["ranks"]["culprit"] == []
    assert hung[0]["ranks"]["never_started"] == []
    assert "1 of 2 ranks of this node has not started" in started.said()


def test_ranks_of_a_hostfile_of_deepspeeds_are_those_of_their_hosts(hosts_here: HostsHere) -> None:
    pytest.importorskip("deepspeed")
    if why_not := hosts_services.ssh_missing():
        pytest.skip(why_not)
    made = hosts_here.make(2)
    hosts_services.start_ssh(made)
    file = hosts_services.write_hostfile(made, 2, made.folder / "hosts")
    path = f"{hosts_services.write_pdsh(made)}:{SCRIPTS}:/usr/bin:/bin"
    words = [SCRIPTS / "deepspeed", f"--hostfile={file}", "--module", "bisect", *OURS[2:]]
    started = hosts_here.start(made[0], *words, env={"PATH": path})
    end_well([started], made, 2 * SILENT)
    found = verdicts(made.folder / "run")
    assert sorted(one["seen_ranks"] for one in found.values()) == [[0, 1], [2, 3]]


# ---- who sees only a part judges no more than that -----------------------------------------------


def test_ranks_on_other_hosts_than_their_client_are_not_judged_by_it(
    hosts_here: HostsHere,
) -> None:
    """On a host to log in to no rank is ever heard, and they are slow to come."""
    made, environ = slurm_hosts(hosts_here, 3, login=True)
    slow = 'sleep 15; exec "$@"'
    words = [HANGBISECT, "run", "--run-dir", "run", "--timeout", "launcher=4", "--stall", "4"]
    words += ["--on-hang", "end", "--", "srun", "-N2", "-n2", "sh", "-c", slow, "sh", PYTHON]
    started = hosts_here.start(made[0], *words, *("-m", "bisect", *SHORT), env=environ)
    end_well([started], made, 60)
    found = verdicts(made.folder / "run")
    assert {one["outcome"] for one in found.values()} == {"ok"}
    assert sorted(rank for one in found.values() for rank in one["seen_ranks"]) == [0, 1]


def test_a_script_on_other_hosts_than_its_client_is_not_judged_by_it(
    hosts_here: HostsHere,
) -> None:
    made, environ = slurm_hosts(hosts_here, 3, login=True)
    (made.folder / "works.py").write_text(WORKS)
    words = [HANGBISECT, "run", "--run-dir", "run", "--stall", "4", "--on-hang", "end", "--"]
    words += ["srun", "-N2", "-n2", PYTHON, "works.py", "12", "0"]
    started = hosts_here.start(made[0], *words, env=environ)
    assert "rank 1 is done" in end_well([started], made, 60)


def test_one_run_for_each_task_blames_no_rank_that_waits_for_one_at_work(
    hosts_here: HostsHere,
) -> None:
    """Each with a `hangbisect run` of its own, of which the node's monitor may know but one."""
    made, environ = slurm_hosts(hosts_here, 1)
    (made.folder / "works.py").write_text(WORKS)
    words = ["srun", "-n3", HANGBISECT, "run", "--run-dir", "run", "--stall", "4"]
    words += ["--on-hang", "end", "--", PYTHON, "works.py", "15", "2"]
    started = hosts_here.start(made[0], *words, env=environ)
    assert started.end(60) == 0, started.said()
    said = started.said()
    assert all(f"rank {rank} is done" in said for rank in range(3))
    # What is said of it is said by who hears all three; that a loop which computes and sleeps is
    # told from a hang is a question of its own.
    assert all(
        "3 ranks" in line for line in said.splitlines() if line.startswith(("HANG", "SILENT"))
    ), said
    assert [one["seen_ranks"] for one in verdicts(made.folder / "run").values()] == [[0, 1, 2]]


def test_agents_that_wait_for_another_host_write_a_verdict_each(hosts_here: HostsHere) -> None:
    """Both see that nothing moves, and share a folder; neither overwrites what the other found."""
    made = hosts_here.make(2)
    run = [HANGBISECT, "run", "--run-dir", "run", "--timeout", "launcher=4", "--stall", "4"]
    # None is ended before both are judged: without the first the second's agent fails at once.
    run += ["--on-hang", "report", "--"]
    words = torchrun_c10d(3, 1, *OURS[:2], *SHORT)
    started = hosts_here.start_each(made.all, lambda k: [*run, *words])
    folders = [made.folder / "run", made.folder / "run-2"]
    end = time.monotonic() + DEADLINE
    while not all(len(verdicts(one)) == 1 for one in folders):
        assert time.monotonic() < end, shown(started)
        time.sleep(0.2)
    for one in started:
        one.signal(signal.SIGTERM)
        one.end(60)
    assert all(len(verdicts(one)) == 1 for one in folders), shown(started)
    evidence = [json.loads(p.read_text()) for one in folders for p in one.glob("**/evidence.json")]
    assert len(evidence) == 2


def test_an_agent_that_waits_for_one_on_a_later_host_is_not_judged(hosts_here: HostsHere) -> None:
    made = hosts_here.make(2)
    (made.folder / "works.py").write_text(WORKS)
    run = [HANGBISECT, "run", "--run-dir", "run", "--stall", "3", "--on-hang", "end", "--"]
    words = torchrun_c10d(2, 1, "works.py", "2", "0")
    first = hosts_here.start(made[0], *run, *words)
    time.sleep(15)
    second = hosts_here.start(made[1], *run, *words)
    end_well([first, second], made, 60)


# ---- what a hang of several hosts is called ------------------------------------------------------


def test_of_a_hang_after_training_the_rank_that_is_to_blame_is_shown(
    hosts_here: HostsHere,
) -> None:
    """The first host sees nobody who is to blame, and would judge after a minute. Nobody who waits
    for an answer waits that long: it is ended before, and part of the joint verdict all the same.
    """
    pytest.importorskip("torch")
    made = hosts_here.make(2)
    (made.folder / "train.py").write_text(TRAINS)
    run = [HANGBISECT, "run", "--run-dir", "run", "--stall", "6", "--on-hang", "report", "--"]
    alone = {"HANGBISECT_NODES": "off"}
    words = [torchrun(number, 2, 1, "train.py") for number in range(2)]
    started = hosts_here.start_each(made.all, lambda k: [*run, *words[k]], env=alone)
    wait_for_verdict(started[1])
    made.until(lambda: "not seen from here" in started[0].said(), "it does not say why it waits")
    assert "SILENT" not in started[0].said()
    found = verdicts(made.folder / "run")
    causes = [one["cause"]["id"] for one in found.values() if one["cause"]]
    assert "other-node-missing" not in causes, shown(started)
    told = worst(made.folder / "run")
    assert told["outcome"] == "silent"  # somebody may yet open the pipe
    assert told["ranks"]["culprit"] == [1], shown(started)
    for one in started:
        one.signal(signal.SIGINT)
    made.until(lambda: len(verdicts(made.folder / "run")) == 2, "no verdict of the first host")
    told = worst(made.folder / "run")
    assert told["ranks"]["culprit"] == [1], shown(started)
    assert told["ranks"]["waiting"] == [0], shown(started)
    assert told["seen_ranks"] == [0, 1]
    assert told["where"][0]["host"] == made[1].name
    printed = subprocess.run(
        [HANGBISECT, "show", made.folder / "run"], capture_output=True, text=True, timeout=60
    ).stdout
    assert f"rank 1 {made[1].name} pid" in printed
    assert re.search(r"waiting +rank 0", printed), printed


def test_ranks_of_a_host_that_never_came_are_said_to_be_missing(hosts_here: HostsHere) -> None:
    """Before the group is made it is the other host's launcher that one looks at."""
    pytest.importorskip("torch")
    made = hosts_here.make(1)
    (made.folder / "train.py").write_text(TRAINS)
    environ = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    environ |= {"MASTER_ADDR": "n1", "MASTER_PORT": "29500", "GROUP_RANK": "0"}
    run = [HANGBISECT, "run", "--run-dir", "run", "--stall", "5", "--on-hang", "end", "--"]
    started = hosts_here.start(made[0], *run, PYTHON, "train.py", env=environ)
    wait_for_verdict(started)
    started.signal(signal.SIGTERM)
    started.end()
    assert float(re.search(r"still for (\d+)", started.said())[1]) >= 60  # type: ignore[index]
    told = worst(made.folder / "run")
    assert told["cause"], started.said()
    assert told["cause"]["id"] == "other-node-missing", started.said()
    assert told["ranks"]["culprit"] == []


def test_a_job_whose_other_host_dies_is_ended_as_its_launcher_would(
    hosts_here: HostsHere,
) -> None:
    """What is left behind of ours is nothing, and a signal still ends it."""
    made = hosts_here.make(2)
    (made.folder / "works.py").write_text(WORKS)
    run = [HANGBISECT, "run", "--run-dir", "run", "--on-hang", "end", "--"]
    started = hosts_here.start_each(
        made.all, lambda k: [*run, *torchrun(k, 2, 1, "works.py", "100", "0")]
    )
    made.until(lambda: any("works.py" in w for w in made[1].processes().values()), "no rank")
    made[1].die()
    started[0].signal(signal.SIGTERM)
    assert started[0].end(SILENT) not in (0, -signal.SIGKILL)
    made.until(lambda: not made[0].left(), f"left: {made[0].left()}")


# ---- what these tests share ----------------------------------------------------------------------


def wait_for_verdict(started: Started) -> None:
    """Wait until it is said that nothing moves: torch is imported first, and a minute may have to
    pass. On a busy machine the deadline of the step may come before, and it is a HANG.
    """
    end = time.monotonic() + 240
    while not any(word in started.said() for word in ("SILENT  ", "HANG  ")):
        assert time.monotonic() < end, shown([started])
        time.sleep(0.2)


def mpirun(made: Hosts, ranks: int, by: str) -> list[str]:
    file = hosts_services.write_hostfile(made, 2, made.folder / "hosts")
    words = ["mpirun", "--allow-run-as-root", "--hostfile", str(file), "--map-by", by]
    return [*words, "-np", str(ranks)]


def slurm_hosts(
    hosts_here: HostsHere, count: int, login: bool = False
) -> tuple[Hosts, dict[str, str]]:
    """Make hosts with a Slurm; the first is one to log in to, if that is asked for."""
    if why_not := hosts_services.slurm_missing():
        pytest.skip(why_not)
    made = hosts_here.make(count)
    return made, hosts_services.start_slurm(made, made.all[1:] if login else made.all)


def worst(run_dir: Path) -> dict[str, Any]:
    """Return the verdict that is shown of a run folder."""
    from hangbisect.base.json_codec import to_json
    from hangbisect.trials.launch import find_verdict

    found: dict[str, Any] = to_json(find_verdict(run_dir))
    return found
