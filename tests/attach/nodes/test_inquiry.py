"""How the machines of a job are asked, each by a small shell script that answers as a node does."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.attach import inquiry
from hangbisect.attach.inquiry import EndedRanks, Inquiry, ask_nodes
from hangbisect.attach.node_messages import Summary, write_message
from hangbisect.attach.nodes import Node, NodeAnswer, RemoteJob
from hangbisect.attach.session import end_ranks_of_nodes, judge_answers
from hangbisect.base.process_facts import Frame

from .test_together import holds_a_lock, machine

LIMIT = 60.0  # seconds: never reached but where a test says so
Client = Callable[..., Node]
# Says that it is ready, waits to be told to look, says what it sees, and answers one question.
ANSWERS = 'cat {0}.ready; read l; cat {0}.seen; read d; echo "$d" > {0}.asked; cat {0}.more'


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Make a node that a script stands for; all of them have the same stack, unless told."""
    monkeypatch.chdir(tmp_path)

    def make(name: str, script: str = ANSWERS, *more: str, line: int = 9) -> Node:
        rank = holds_a_lock(int(name[1:]), 7)
        frames = (Frame("wait", "/home/ada/train.py", line),)
        looks = tuple(
            replace(one, threads=(replace(one.threads[0], frames=frames),)) for one in rank.looks
        )
        summary = Summary(machine(name, replace(rank, looks=looks)))
        told = {"ready": {"is": "ready"}, "seen": summary.message()}
        told["more"] = summary.details(summary.looks.stacks, [7])
        told["ended"] = {"is": "ended", "ended": [7, 8], "left": [9]}
        for what, message in told.items():
            Path(f"{name}.{what}").write_bytes(write_message(name, message))
        ways = (script, *more)
        return Node(name, tuple(("sh", "-c", way.format(name)) for way in ways), f"ssh {name}")

    return make


def ask(*nodes: Node, limit: float = LIMIT, **more: object) -> list[NodeAnswer]:
    job = replace(RemoteJob(nodes, "a job", ""), **more)  # type: ignore[arg-type]  # its fields
    return asyncio.run(ask_nodes(job, limit))


def seen(answers: list[NodeAnswer]) -> list[str]:
    return [one.facts.host if one.facts else one.trouble for one in answers]


def times(*files: str) -> list[int]:
    return [int(Path(file).read_text()) for file in files]


def test_no_machine_looks_before_all_are_ready(client: Client) -> None:
    script = (
        "sleep {1}; date +%s%N > {0}.0; cat {0}.ready; read l; date +%s%N > {0}.1; cat {0}.seen; "
        "read d; cat {0}.more"
    )
    nodes = [
        client(name, script.replace("{1}", pause))
        for name, pause in (("n0", "0.6"), ("n1", "0"), ("n2", "0.3"))
    ]
    assert seen(ask(*nodes)) == ["n0", "n1", "n2"]
    assert max(times("n0.0", "n1.0", "n2.0")) < min(times("n0.1", "n1.1", "n2.1"))


def test_those_that_tell_their_clocks_are_told_one_moment_however_far_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is said to the second takes 0.3 s each way, and its clock is an hour ahead."""
    now = 100.0
    monkeypatch.setattr(inquiry, "time", SimpleNamespace(monotonic=lambda: now))

    class Told(inquiry._Group):
        def tell(self, order: Any) -> None:
            orders.append(order)

    orders: list[Any] = []

    async def test() -> None:
        nonlocal now
        groups = [Told([Node(name, (), "")], ()) for name in ("n0", "n1")]
        start = inquiry._Start(groups, LIMIT)
        near, far = (group.nodes[0] for group in groups)
        for group, asked in zip(groups, (near, far), strict=True):
            asked.name, asked.tells_clock = asked.node.name, True
            start.settle(group, asked)
        assert orders == [{"is": "clock"}] * 2
        start.note_clock(near, 100.0)
        assert len(orders) == 2
        now = 100.6
        start.note_clock(far, 3700.3)

    asyncio.run(test())
    moments = [order["at"] for order in orders[2:]]
    assert moments == [
        {"n0": pytest.approx(101.25)},
        {"n1": pytest.approx(3701.25)},
    ]  # it arrives at 100.9


def test_who_does_not_tell_its_clock_in_time_looks_when_it_is_told(client: Client) -> None:
    silent = (
        'cat {0}.ready; read c; read l; echo "$l" > {0}.told; cat {0}.seen; read d; cat {0}.more'
    )
    nodes = [client(name, silent) for name in ("n0", "n1")]
    for name in ("n0", "n1"):
        Path(f"{name}.ready").write_bytes(write_message(name, {"is": "ready", "clock": True}))
    assert seen(ask(*nodes)) == ["n0", "n1"]
    assert json.loads(Path("n0.told").read_text()) == {"is": "look", "at": {}}


def test_one_that_is_never_ready_holds_nobody_back(client: Client) -> None:
    found = ask(client("n0"), client("n1", "exec sleep 60"), limit=4.0)
    assert seen(found) == ["n0", "no answer within 4 s"]


def test_one_that_fails_holds_nobody_back(client: Client) -> None:
    fails = client("n1", "echo connect to host n1: No route to host >&2; exit 255")
    assert seen(ask(client("n0"), fails)) == ["n0", "connect to host n1: No route to host"]


def test_never_more_clients_run_than_the_window_has(client: Client) -> None:
    script = f"echo + >> log; {ANSWERS}; cat > {{0}}.rest; echo - >> log"
    nodes = [client(f"n{n}", script) for n in range(6)]
    assert seen(ask(*nodes, window=2)) == [f"n{n}" for n in range(6)]
    running = most = 0
    for sign in Path("log").read_text().split():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert most == 2
    assert running == 0


def test_a_stack_is_asked_of_one_machine_alone(client: Client) -> None:
    nodes = [client("n0"), client("n1"), client("n2", line=10)]
    found = ask(*nodes)
    assert seen(found) == ["n0", "n1", "n2"]
    frames = [one.facts.ranks[0].looks[-1].threads[0].frames for one in found if one.facts]
    assert [stack[0].line for stack in frames] == [9, 9, 10]
    orders = [file.read_text() for file in Path().glob("*.asked")]
    asked = [json.loads(order) for order in orders if order.strip()]
    stacks = [name for one in asked for of in one["of"].values() for name in of["stacks"]]
    assert len(stacks) == len(set(stacks)) == 2


def test_a_machine_that_goes_before_it_tells_its_stack_costs_no_other_one(client: Client) -> None:
    goes = client("n0", "cat {0}.ready; read l; cat {0}.seen; read d; exit 1")
    later = client("n1", ANSWERS.replace("cat {0}.seen", "sleep 0.3; cat {0}.seen"))
    assert seen(ask(goes, later)) == ["it printed no facts", "n1"]


def test_a_stack_that_is_not_the_one_that_was_asked_for_is_no_answer(client: Client) -> None:
    node = client("n0")
    other = Summary(machine("n0", holds_a_lock(0, 7)))
    Path("n0.more").write_bytes(write_message("n0", other.details(other.looks.stacks, [])))
    assert seen(ask(node)) == ["it does not tell the stacks that it has"]


def test_where_one_way_fails_the_next_is_tried(client: Client) -> None:
    refused = "echo Error: ephemeralcontainers is forbidden >&2; exit 1"
    assert seen(ask(client("n0", refused, ANSWERS))) == ["n0"]
    both = client("n0", refused, "echo no such command >&2; exit 127")
    told = "Error: ephemeralcontainers is forbidden; no such command"
    assert seen(ask(both)) == [told]


def test_what_a_machine_says_is_why_there_is_no_answer(client: Client) -> None:
    node = client("n0", "cat {0}.why; exec cat > {0}.rest")
    why = "no job runs here that can be seen"
    Path("n0.why").write_bytes(write_message("", {"is": "trouble", "why": why}))
    assert seen(ask(node)) == [why]


def test_one_step_asks_all_nodes_and_one_without_a_job_is_named(client: Client) -> None:
    nodes = [client("n0", "exit 9"), client("n1", "exit 9"), client("n2", "exit 9")]
    why = {"is": "trouble", "why": "no job runs here that can be seen"}
    Path("n2.why").write_bytes(write_message("n2", why))
    step = "cat n1.ready n0.ready n2.why; read l; cat n0.seen n1.seen; read d; cat n0.more n1.more"
    found = ask(*nodes, together=("sh", "-c", f"{step}; exit 1"))
    assert [one.node.name for one in found] == ["n0", "n1", "n2"]
    assert seen(found) == ["n0", "n1", why["why"]]


def test_where_the_one_step_does_not_begin_on_a_node_the_others_are_asked_each_for_itself(
    client: Client,
) -> None:
    """Srun would end the tasks of all of them, for the slurmd of one that does not answer."""
    nodes = [client("n0"), client("n1"), client("n2", "echo srun: error: n2: gone >&2; exit 1")]
    step = ("sh", "-c", "cat n1.ready n0.ready; exec sleep 60")
    found = ask(*nodes, limit=20.0, together=step)
    assert seen(found) == ["n0", "n1", "srun: error: n2: gone"]


def test_where_the_one_step_cannot_begin_each_node_is_asked_for_itself(client: Client) -> None:
    refused = ("sh", "-c", "echo Required node not available >&2; exit 1")
    assert seen(ask(client("n0"), client("n1"), together=refused)) == ["n0", "n1"]


@pytest.mark.parametrize(
    ("said", "told"),
    [("y", "n0: ended 7, 8\nn0: still there, in the kernel (state D): 9\n"), ("", "Nothing was")],
)
def test_a_person_at_the_terminal_is_asked_before_anything_is_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    nodes = (client("n0", f"{ANSWERS}; read e; cat {{0}}.ended"), client("n1", "exit 1"))
    job = RemoteJob(nodes, "a job", "")
    terminal, inner = os.openpty()
    os.write(terminal, f"{said}\n".encode())

    async def end() -> None:
        inquiry = Inquiry(job, LIMIT)
        try:
            answers = await inquiry.ask()
            found = judge_answers(job, answers, 100.0)
            await end_ranks_of_nodes(inquiry, answers, found, sure=False)
        finally:
            await inquiry.close()

    with open(inner, closefd=False) as keyboard, open(inner, "w", closefd=False) as screen:
        monkeypatch.setattr(sys, "stdin", keyboard)
        monkeypatch.setattr(sys, "stderr", screen)
        asyncio.run(end())
    printed = ""
    while select.select([terminal], [], [], 0.2)[0]:
        printed += os.read(terminal, 4096).decode().replace("\r", "")
    assert "End 1 rank on 1 machine, and what belongs to them? [y/N] " in printed
    assert told in printed
    assert ("n1: not seen, so nothing was ended there" in printed) == bool(said)
    os.close(inner)
    os.close(terminal)


def test_a_step_that_says_nothing_until_the_limit_is_not_followed_by_others(client: Client) -> None:
    nodes = (client("n0"), client("n1"))
    found = ask(*nodes, together=("sleep", "60"), limit=1.0)
    assert seen(found) == ["no answer within 1 s"] * 2
    assert not list(Path().glob("*.asked"))


def test_the_ranks_that_were_seen_are_ended_by_the_machines_that_saw_them(client: Client) -> None:
    ends = f"{ANSWERS}; read e; echo $e > {{0}}.told; cat {{0}}.ended"
    # Of another stack: of two machines with the same one only the first that answers is asked.
    silent = client("n2", f"{ANSWERS}; read e", line=8)
    nodes = (client("n0", ends), client("n1", "exit 1"), silent)

    async def end() -> list[EndedRanks]:
        inquiry = Inquiry(RemoteJob(nodes, "a job", ""), LIMIT)
        try:
            await inquiry.ask()
            return await inquiry.end_ranks()
        finally:
            await inquiry.close()

    found = asyncio.run(end())
    assert found == [
        EndedRanks(nodes[0], (7, 8), (9,)),
        EndedRanks(nodes[2], trouble="it does not say that it has ended anything"),
    ]
    assert json.loads(Path("n0.told").read_text()) == {"is": "end"}
