"""Barriers of a job on several hosts: all ranks wait for the last one, wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hosts import Host, Hosts
from joined_hosts import environ_of

from .hosts_here import HostsHere, Started
from .test_joined_nodes import told
from .test_several_hosts import PYTHON, shown

APART = """
import time
import torch.distributed

def begin(given):
    torch.distributed.init_process_group("gloo")
    time.sleep(4)  # the nodes are joined by then
    if given.context.place.rank == 1:
        torch.distributed.barrier()

def go_on(given):
    if given.context.place.rank == 0:
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()

def nothing(given):
    time.sleep(4)

def stop_here(given):
    if given.context.place.rank == 1:
        time.sleep(100_000)
"""


def walk(hosts_here: HostsHere, made: Hosts, *words: str) -> list[Started]:
    """Start one rank of a pipeline on each host."""
    ours = (PYTHON, "-m", "bisect", "--run-dir", "run", "--on-hang", "end", *words)
    started = []
    for number, host in enumerate(made.all):
        (host.inside_folder / "apart.py").write_text(APART)
        environ = environ_of(number, len(made.all))
        started.append(hosts_here.start(host, *ours, env=environ))
    return started


def use(*functions: str) -> list[str]:
    """Return the options by which these functions are the pipeline's."""
    return [word for one in functions for word in ("--use", one)]


def said(started: Sequence[Started]) -> str:
    return "\n".join(one.said() for one in started)


def find_verdicts(hosts: Sequence[Host]) -> list[dict[str, Any]]:
    return [told(host) for host in hosts]


def test_ranks_of_a_host_wait_for_a_straggler_of_another_one(hosts_here: HostsHere) -> None:
    made = hosts_here.make(2, shared=False)
    steps = use("logs_directory=apart:nothing", "tokenizer=apart:stop_here", "model=apart:nothing")
    started = walk(hosts_here, made, *steps, "--until", "model", "--timeout", "tokenizer=8")
    for one in started:
        one.end()
    for found in find_verdicts(made.all):
        assert found["outcome"] == "hang", shown(started)
        assert found["ranks"]["culprit"] == [1]
        assert found["checkpoint"]["name"] == "tokenizer"
        assert found["cause"]["id"] == "own-code-sleeps"
        assert not found["barrier_opened"]
    assert "CHECKPOINT 4" in started[0].said(), shown(started)
    assert "CHECKPOINT 5" not in said(started), shown(started)  # rank 0 was held behind step 4


def test_a_barrier_of_all_hosts_is_never_the_cause_but_opens(hosts_here: HostsHere) -> None:
    """Rank 1 waits for what rank 0 does in its next step, which our barrier would keep it from."""
    made = hosts_here.make(2, shared=False)
    steps = use("logs_directory=apart:begin", "tokenizer=apart:go_on")
    started = walk(hosts_here, made, *steps, "--until", "tokenizer", "--timeout", "8")
    assert [one.end() for one in started] == [0, 0], shown(started)
    assert {one["outcome"] for one in find_verdicts(made.all)} == {"ok"}
    assert "waited for ranks of other nodes in our barrier" in started[1].said(), shown(started)


@pytest.mark.parametrize("is_joined", [True, False])
def test_rank_0_of_another_host_is_waited_for_where_it_is_heard(
    is_joined: bool, hosts_here: HostsHere
) -> None:
    made = hosts_here.make(2, shared=False)
    nodes = "join" if is_joined else "off"
    words = ("--until", "weights", "--save-module", "/tmp/saved", "--nodes", nodes)
    started = walk(hosts_here, made, "--pipeline", "replay", *words)
    assert [one.end() for one in started] == [0, 0], shown(started)
    assert "Waiting for rank 0: saving the module" in started[1].said(), shown(started)
    goes_on = "Rank 0 is on another node, or not heard" in started[1].said()
    assert goes_on is not is_joined, shown(started)
    assert [one.said().count("Module saved") for one in started] == [1, 0]
    noted = next((made.all[1].inside_folder / "run").glob("**/events.jsonl")).read_text()
    assert '"t": "waits_no_more"' in noted  # who goes on from these events knows that it was let go
