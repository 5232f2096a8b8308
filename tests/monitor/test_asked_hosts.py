"""Hosts that a launcher reaches by ssh: which, by what, and when they are asked; and what monitors
are told of it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.client_program import SshClient, read_ssh_client
from hangbisect.base.json_codec import to_json
from hangbisect.base.rank_facts import JobFacts
from hangbisect.base.verdict_facts import Outcome, Ranks
from hangbisect.diagnosis.verdict_skeleton import make_verdict_skeleton
from hangbisect.diagnosis.wait_graph import WaitGraph
from hangbisect.front.watcher_socket import ALL_HOSTS
from hangbisect.monitor import asked_hosts
from hangbisect.monitor.asked_hosts import find_common_assignments, find_pause, read_told
from hangbisect.monitor.judgement import read_told_of_hosts
from hangbisect.monitor.watcher_verdict import LauncherSnapshot

SKELETON = make_verdict_skeleton(JobFacts(ended="still"), (), "silent", Ranks(culprit=(2,)))


class Held:
    """Hosts that wait for what is to be done with their ranks."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def end_ranks(self) -> list[str]:
        self.done.append("end")
        return ["n2: ended 223"]

    async def let_go(self) -> None:
        self.done.append("let go")


def closed(on_hang: str, outcome: Outcome, may_go_on: bool = False) -> list[str]:
    """Return what becomes of the ranks on other hosts at a verdict."""
    verdict = replace(SKELETON, outcome=outcome)
    held = Held()

    async def close(outside: object, told: object, is_to_end: bool) -> None:
        held.done.append("said")

    its = SimpleNamespace(
        around=SimpleNamespace(on_hang=on_hang, joins_nodes=True, starter=None, ask_hosts=None),
        listening=SimpleNamespace(folder=""),
        may_go_on=lambda told: may_go_on,
        close=close,
    )
    judged = asked_hosts.Judged(verdict, JobFacts(ended="still"), (), WaitGraph((), (), ()))
    answer = asked_hosts.HostsAnswer(judged, held=held)
    asyncio.run(asked_hosts.AskedHosts(its)._close(None, answer))  # type: ignore[arg-type]
    return held.done


def test_ranks_on_other_hosts_are_ended_at_a_hang_where_that_was_asked_for() -> None:
    assert closed("end", "hang") == ["said", "end", "let go"]
    assert closed("end", "silent") == ["said", "let go"]
    assert closed("report", "hang") == ["said", "let go"]
    assert closed("end", "hang", may_go_on=True) == ["let go"]


def test_a_host_whose_ssh_has_ended_is_asked_as_long_as_another_is_there() -> None:
    here, gone = SshClient("n1", (), "python a.py"), SshClient("n2", (), "python a.py")
    outside = LauncherSnapshot(100, False, ssh_clients=[here])
    question = asked_hosts.make_question(outside, 100, [gone, here])
    assert {one.host for one in question.clients} == {"n1", "n2"}
    outside.ssh_clients = []
    assert asked_hosts.make_question(outside, 100, [gone, here]).clients == ()


@pytest.mark.parametrize(
    ("command", "host", "options"),
    [
        (["ssh", "n2", "cd /job && exec env RANK=1 /env/bin/python train.py"], "n2", ()),
        (["/usr/bin/ssh", "-x", "n3", "    orted -mca ess env"], "n3", ()),
        (
            ["ssh", "-p2222", "-i", "key", "-tt", "ada@n2", "bash", "-lc", "train"],
            "ada@n2",
            ("-p", "2222", "-i", "key"),
        ),
        (
            ["ssh", "-oConnectTimeout=10", "-2", "-a", "-lroot", "n1", "python train.py"],
            "n1",
            ("-o", "ConnectTimeout=10", "-l", "root"),
        ),
        (["ssh", "-o", "RemoteForward=1:h:2", "-n", "--", "n2", "./run.sh"], "n2", ()),
    ],
)
def test_an_ssh_that_starts_a_part_of_a_job(
    command: list[str], host: str, options: tuple[str, ...]
) -> None:
    found = read_ssh_client(command)
    assert found is not None
    assert (found.host, found.options) == (host, options)


@pytest.mark.parametrize(
    "command",
    [
        "ssh -N -L 8080:localhost:8080 n2",
        "ssh git@example.org git-upload-pack 'ada/data.git'",
        "ssh n2 rsync --server -e.iLsfxCIvu . /data",
        "ssh -s n2 sftp",
        "ssh n2",
        "python -m torch.distributed.run train.py",
        "",
    ],
)
def test_what_is_no_such_thing(command: str) -> None:
    assert read_ssh_client(command.split()) is None


def test_what_tells_the_run_is_what_all_commands_set_alike() -> None:
    one = "cd /job && exec env RANK=%d MASTER_ADDR=n1 MASTER_PORT=%d python train.py"
    assert find_common_assignments([one % (0, 29400), one % (1, 29400)]) == {"MASTER_PORT": "29400"}
    assert find_common_assignments([one % (0, 29400), one % (1, 29401)]) == {}
    assert find_common_assignments([]) == {}


def test_a_command_that_has_run_for_long_is_asked_about_seldom() -> None:
    assert find_pause(8.0, 20.0, is_wanted=False) == 20.0
    assert find_pause(100.0, 20.0, is_wanted=False) == 50.0
    assert find_pause(1e6, 20.0, is_wanted=False) == 600.0
    assert find_pause(1e6, 20.0, is_wanted=True) == 60.0


def test_monitors_read_what_was_written_for_them(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    assert read_told(path) is None
    for verdict in (None, SKELETON):
        goes_on = "" if verdict else "rank 1 is at work"
        told = {"at": 7.0, "goes_on": goes_on, "verdict": verdict and to_json(verdict)}
        (tmp_path / ALL_HOSTS).write_text(json.dumps(told))
        found = read_told(path)
        assert found is not None
        assert (found.at, bool(found.goes_on), found.verdict) == (7.0, verdict is None, verdict)
    (tmp_path / ALL_HOSTS).write_text('{"at": 1}')
    assert read_told(path) is None


@pytest.mark.parametrize(
    ("moved_at", "culprit", "ended", "is_read"),
    [
        (5.0, (), "still", True),
        (9.0, (), "still", False),  # it has moved since
        (5.0, (0,), "still", False),  # who is to blame is here
        (5.0, (), "done", False),
    ],
)
def test_a_monitor_reads_it_where_its_ranks_can_only_wait_for_others(
    tmp_path: Path, moved_at: float, culprit: tuple[int, ...], ended: Any, is_read: bool
) -> None:
    told = {"at": 7.0, "goes_on": "", "verdict": to_json(SKELETON)}
    (tmp_path / ALL_HOSTS).write_text(json.dumps(told))
    outer = SimpleNamespace(paths=["/nowhere/socket", str(tmp_path / "socket")])
    job: Any = SimpleNamespace(
        outer=outer, members=[SimpleNamespace(moved_at=moved_at)], is_trial=False
    )
    own = replace(SKELETON, ranks=Ranks(culprit=culprit), seen_ranks=(0,), world_size=3)
    found = read_told_of_hosts(job, SimpleNamespace(verdict=own), ended)  # type: ignore[arg-type]
    assert (found is not None and found.verdict == SKELETON) is is_read


def test_the_nodes_of_an_srun_without_our_variables_are_those_of_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"SLURM_JOB_ID": "4711", "MASTER_PORT": "29400"}
    monkeypatch.setattr(asked_hosts, "variables_of", lambda pid: environ)
    outside = LauncherSnapshot(100, False, rank_of={200: 0}, has_clients=True)
    assert asked_hosts.make_question(outside, 100).slurm == "4711"
    outside.ssh_clients = [SshClient("n2", (), "python train.py")]
    question = asked_hosts.make_question(outside, 100)
    assert (question.slurm, question.own, question.only) == ("", 100, {"MASTER_PORT": "29400"})
    inside = LauncherSnapshot(100, False, rank_of={200: 0})  # torchrun in a task: it asks nobody
    assert asked_hosts.make_question(inside, 100).slurm == ""
