"""`hangbisect nodes` on hosts of their own, by ssh and by Slurm: a bad node, a bad link, none; and
what is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hosts_services
import jsonschema
import pytest
from hosts import Hosts

from .hosts_here import SCRIPTS, HostsHere, Started
from .verdicts import schema

HANGBISECT = str(SCRIPTS / "hangbisect")
# Hangs on one node, as a driver does that does not answer; passes elsewhere.
HANGS_ON = 'if [ "$(hostname)" = {node} ]; then exec sleep 1000; fi; test -n "$MASTER_ADDR"'


@pytest.fixture
def made(hosts_here: HostsHere) -> Hosts:
    """Four nodes to be searched, and n5, on which a person works."""
    if why_not := hosts_services.ssh_missing():
        pytest.skip(why_not)
    made = hosts_here.make(5)
    hosts_services.start_ssh(made)
    return made


def search(hosts_here: HostsHere, made: Hosts, *words: str, among: str = "n[1-4]") -> Started:
    """Start a search from n5 among others, in the folder `run`."""
    ours = (HANGBISECT, "nodes", "--hosts", among, "--run-dir", "run", *words)
    return hosts_here.start(made[4], *ours)


def answer(made: Hosts) -> dict[str, Any]:
    """Return what nodes.json says, which is as its schema has it."""
    found: dict[str, Any] = json.loads((made.folder / "run" / "nodes.json").read_text())
    jsonschema.validate(found, schema("nodes"))
    return found


def left(made: Hosts) -> list[str]:
    """Return what runs on the searched hosts beside their daemons, once all had time to end."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = [one for host in made.all[:4] for one in host.processes().values()]
        if not found:
            return []
        time.sleep(0.1)
    return found


def test_where_nothing_is_bad_nobody_is_named(hosts_here: HostsHere, made: Hosts) -> None:
    started = search(hosts_here, made, among="n[1-2]")  # with torch, where there is one
    assert started.end() == 1, started.said()
    found = answer(made)
    assert (found["outcome"], found["bad"]) == ("no_fault", [])
    assert found["control"] == ["n1", "n2"]
    assert "NO BAD NODE" in started.said()
    assert left(made) == []


def test_a_node_on_which_the_job_hangs_is_named(hosts_here: HostsHere, made: Hosts) -> None:
    words = ("--yes", "--limit", "6", "--", "sh", "-c", HANGS_ON.format(node="n3"))
    started = search(hosts_here, made, *words)
    assert started.end() == 0, started.said()
    found = answer(made)
    (bad,) = found["bad"]
    assert (bad["kind"], bad["nodes"], bad["fails"]) == ("alone", ["n3"], 3)
    assert found["exclude"] == ["n3"]
    assert "exclude   --exclude=n3" in started.said()
    assert "kubectl cordon n3" in started.said()
    assert left(made) == []


def test_a_node_that_nobody_else_reaches_is_named(hosts_here: HostsHere, made: Hosts) -> None:
    """Only the login host does: alone all is well on it."""
    made.cut(made[1], made[0], made[2], made[3])
    started = search(hosts_here, made, "--without-torch")
    assert started.end() == 0, started.said()
    found = answer(made)
    (bad,) = found["bad"]
    assert (bad["kind"], bad["nodes"]) == ("in company", ["n2"]), started.said()


def test_a_cut_between_two_nodes_is_a_link(hosts_here: HostsHere, made: Hosts) -> None:
    made.cut(made[0], made[2])
    started = search(hosts_here, made, "--without-torch")
    assert started.end() == 0, started.said()
    found = answer(made)
    (bad,) = found["bad"]
    assert (bad["kind"], bad["nodes"]) == ("link", ["n1", "n3"]), started.said()
    assert found["exclude"] in (["n1"], ["n3"])


def test_a_host_that_cannot_be_reached_is_said_and_not_named(
    hosts_here: HostsHere, made: Hosts
) -> None:
    made.cut(made[3])
    started = search(hosts_here, made, "--without-torch")
    assert started.end() == 1, started.said()
    found = answer(made)
    assert (found["not_seen"], found["bad"]) == (["n4"], [])
    assert "n4: could not be started: ssh: connect to host n4" in started.said()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_is_ended_leaves_nothing_and_can_be_resumed(
    number: signal.Signals, hosts_here: HostsHere, made: Hosts
) -> None:
    words = ("--yes", "--limit", "8", "--", "sh", "-c", HANGS_ON.format(node="n3"))
    started = search(hosts_here, made, *words)
    file = made.folder / "run" / "nodes.json"
    made.until(file.exists, "no round is over", 90)
    started.signal(number)
    assert left(made) == []
    made.until(lambda: not made[4].processes(), f"not ended: {started.said()}")
    assert ("INTERRUPTED" in started.said()) == (number == signal.SIGINT)
    before = answer(made)
    assert (before["outcome"], len(before["starts"])) == ("interrupted", 4)
    again = hosts_here.start(made[4], HANGBISECT, "nodes", "--resume", "run")
    assert again.end() == 0, again.said()
    assert "round 1:" not in again.said()  # it is not repeated
    found = answer(made)
    assert [one["nodes"] for one in found["bad"]] == [["n3"]]
    assert found["starts"][:4] == before["starts"]


def test_nodes_of_an_allocation_are_searched_by_steps_of_slurms(hosts_here: HostsHere) -> None:
    if why_not := hosts_services.slurm_missing():
        pytest.skip(why_not)
    made = hosts_here.make(4)
    environ = hosts_services.start_slurm(made)
    ours = (HANGBISECT, "nodes", "--run-dir", "run", "--yes", "--limit", "6", "--")
    hangs = ("sh", "-c", HANGS_ON.format(node="n3"))
    started = hosts_here.start(made[0], "salloc", "--nodes=4", *ours, *hangs, env=environ)
    assert started.end() == 0, started.said()
    (bad,) = answer(made)["bad"]
    assert (bad["kind"], bad["nodes"]) == ("alone", ["n3"]), started.said()
    assert left(made) == []


def test_the_answer_is_in_a_report_too(hosts_here: HostsHere, made: Hosts) -> None:
    started = search(hosts_here, made, "--yes", "--json", "--", "true")
    assert started.end() == 1, started.said()
    report = Path(made.folder / "run" / "report.md").read_text()
    assert "NO BAD NODE" in report
    assert '"outcome": "no_fault"' in started.said()


def is_up(started: Started) -> bool:
    return "Ray runtime started" in started.said()


@pytest.mark.skipif(find_spec("ray") is None, reason="no Ray is installed here")
def test_of_rays_nodes_the_one_on_which_the_job_hangs_is_named(hosts_here: HostsHere) -> None:
    made = hosts_here.make(3)
    options = ("--block", "--num-cpus=1", "--object-store-memory=80000000")
    head = ("--head", "--port=6379", "--include-dashboard=false")
    for host in made.all:
        which = head if host is made[0] else (f"--address={made[0].address}:6379",)
        start = (SCRIPTS / "ray", "start", *which, *options, f"--node-ip-address={host.address}")
        ray = hosts_here.start(host, *start, env={"RAY_USAGE_STATS_ENABLED": "0"})
        made.until(partial(is_up, ray), "no Ray", 90)
    bad = made[2].address
    hangs = 'if hostname -I | grep -q {}; then exec sleep 1000; fi; test -n "$MASTER_ADDR"'
    command = ("--yes", "--limit", "8", "--run-dir", "run", "--", "sh", "-c", hangs.format(bad))
    address = {"RAY_ADDRESS": f"{made[0].address}:6379"}
    started = hosts_here.start(made[0], HANGBISECT, "nodes", "--ray", *command, env=address)
    assert started.end(400.0) == 0, started.said()
    found = answer(made)
    assert [(one["kind"], one["nodes"]) for one in found["bad"]] == [("alone", [bad])]
    assert found["engine"] == "ray"
    running = [words for host in made.all for words in host.processes().values()]
    assert not [words for words in running if "node_task" in words or "sleep 1000" in words]


# A kubectl for hosts: a pod on each, on a node of another name, where commands start as they would
# in a container. What it prints follows the API (PodList).
_KUBECTL = """#!{python}
import json, os, sys

hosts = {hosts}
words = sys.argv[1:]
if words[:2] == ["get", "pods"]:
    assert words[2:] == ["--selector=app=idle", "--output=json"], words
    items = [
        {{
            "metadata": {{"name": f"idle-{{host}}"}},
            "spec": {{"nodeName": f"node-of-{{host}}", "containers": [{{"name": "train"}}]}},
            "status": {{"phase": "Running", "podIP": address}},
        }}
        for host, address in hosts.items()
    ]
    print(json.dumps({{"items": items}}))
else:
    assert words[0] == "exec" and words[2:5] == ["--container=train", "--stdin", "--"], words
    host = words[1].removeprefix("idle-")
    import shlex
    task = shlex.join([{scripts!r} + "/" + words[5], *words[6:]])
    os.execvp("ssh", ["ssh", "-o", "BatchMode=yes", "-T", "--", host, task])
"""


def test_of_the_pods_of_a_job_the_node_of_the_one_that_hangs_is_named(
    hosts_here: HostsHere, made: Hosts
) -> None:
    kubectl = made.folder / "bin" / "kubectl"
    kubectl.parent.mkdir()
    hosts = {host.name: host.address for host in made.all[:4]}
    kubectl.write_text(_KUBECTL.format(python=sys.executable, hosts=hosts, scripts=str(SCRIPTS)))
    kubectl.chmod(0o755)
    words = ("--yes", "--limit", "8", "--", "sh", "-c", HANGS_ON.format(node="n3"))
    ours = (HANGBISECT, "nodes", "--kubernetes", "app=idle", "--run-dir", "run", *words)
    path = {"PATH": f"{kubectl.parent}:{os.environ['PATH']}"}
    started = hosts_here.start(made[4], *ours, env=path)
    assert started.end() == 0, started.said()
    found = answer(made)
    assert [(one["kind"], one["nodes"]) for one in found["bad"]] == [("alone", ["node-of-n3"])]
    assert (found["engine"], found["options"]["selector"]) == ("kubernetes", "app=idle")
    assert "kubectl cordon node-of-n3" in started.said()
    assert left(made) == []
