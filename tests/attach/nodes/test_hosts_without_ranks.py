"""Hosts that were asked, and on which nothing of the job runs: whose ranks are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hangbisect.attach import session
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.attach.nodes import Node, NodeAnswer, RemoteJob, end_ranks_of_agents
from hangbisect.attach.session import judge_answers
from hangbisect.base.client_program import SshClient
from hangbisect.base.process_facts import Frame, Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.monitor.asked_hosts import HostsAnswer, Question

from ..test_words import BARRIER, SITE, SLEEP, node, rank

NO_JOB = "No job runs here that can be seen: no process has a rank in its environment."


def waits(number: int, size: str = "1", world: int = 3) -> NodeFacts:
    """A host whose one rank waits in a barrier."""
    return _host(rank(number, BARRIER, "futex"), size, world)


def _host(one: RankFacts, size: str, world: int) -> NodeFacts:
    told = replace(one, environment={"LOCAL_WORLD_SIZE": size} if size else {})
    return node(told, world=world, whole=False)


def judged(
    *answers: NodeFacts | None,
    silent: bool = False,
    why: str = "no answer within 30 s",
    addresses: dict[str, list[str]] | None = None,
) -> Verdict:
    """What is said of hosts n1, n2, ...; None has no job, or is not reached (`why`)."""
    trouble = why if silent else NO_JOB
    asked = [
        NodeAnswer(Node(f"n{at}", (), ""), one, "" if one else trouble, not (one or silent))
        for at, one in enumerate(answers, start=1)
    ]
    job = RemoteJob(tuple(one.node for one in asked), "the job", "kill it")
    return judge_answers(job, asked, 102.0, addresses).verdict


def test_the_rank_of_the_host_on_which_nothing_runs_is_missed_there() -> None:
    verdict = judged(waits(0), waits(1), None)
    assert (verdict.ranks.culprit, verdict.ranks.never_started) == ((2,), (2,))
    assert verdict.ranks.waiting == (0, 1)
    assert [one.host for one in verdict.where if one.rank == 2] == ["n3"]
    assert verdict.cause is not None
    assert verdict.cause.id == "rank-never-started"


def test_a_process_without_a_number_that_was_there_before_is_no_rank_of_the_job() -> None:
    """It is the first rank of an earlier job, whose store it serves."""
    numbers = [{"RANK": str(n), "LOCAL_WORLD_SIZE": "1"} for n in (1, 2)]
    ranks = [
        replace(one, ranks=tuple(replace(r, environment=env) for r in one.ranks))
        for one, env in zip((waits(1), waits(2)), numbers, strict=True)
    ]
    left = replace(_host(rank(0, SLEEP, "clock_nanosleep"), "", 1), world=1)
    verdict = judged(replace(left, age=ranks[0].age + 60.0), *ranks)
    assert (verdict.ranks.culprit, verdict.ranks.never_started) == ((0,), (0,))
    assert verdict.notes[0].startswith("nothing of the job runs on n1: process ")
    young = judged(replace(left, age=ranks[0].age), *ranks)
    assert young.ranks.never_started == ()


def test_of_two_such_hosts_nobody_knows_which_rank_was_where() -> None:
    verdict = judged(waits(0), None, None)
    assert verdict.ranks.culprit == (1, 2)
    assert {one.host for one in verdict.where if one.rank in (1, 2)} == {""}


def test_a_host_that_was_not_reached_may_have_them() -> None:
    verdict = judged(waits(0), waits(1), None, silent=True)
    assert verdict.ranks.culprit == ()
    assert verdict.cause is None or verdict.cause.id != "rank-never-started"


def test_more_ranks_are_missing_than_that_host_has_or_nobody_counts_them() -> None:
    for size, world in (("1", 4), ("2", 3), ("", 3)):
        verdict = judged(waits(0, size, world), waits(1, size, world), None)
        assert verdict.ranks.never_started == (), (size, world)


def test_a_rank_that_stands_still_by_itself_is_blamed_all_the_same() -> None:
    verdict = judged(_host(rank(0, SLEEP, "clock_nanosleep"), "1", 2), None)
    assert 0 in verdict.ranks.culprit


API = "torch/distributed/elastic/agent/server/api.py"
AWAY = "ssh: connect to host n3 port 22: No route to host"


def test_the_ranks_of_a_host_that_the_network_does_not_reach_are_lost_with_it() -> None:
    verdict = judged(waits(0), waits(1), None, silent=True, why=AWAY)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((), (0, 1))
    assert verdict.cause is not None
    assert verdict.cause.id == "node-lost"
    assert "n3 (rank 2) is not seen" in verdict.cause.matched


def test_which_of_two_has_them_or_a_host_that_lets_nobody_in_is_not_told() -> None:
    for answers, why in (
        ((waits(0, world=3), None, None), AWAY),
        ((waits(0), waits(1), None), "Permission denied (publickey)"),
        ((waits(0, world=2), waits(1, world=2), None), AWAY),
    ):
        verdict = judged(*answers, silent=True, why=why)
        assert verdict.cause is None or verdict.cause.id != "node-lost"


AGENT = Frame("SimpleElasticAgent._exit_barrier", SITE + API, 994)


def agent(frame: Frame, host: str) -> NodeFacts:
    """A host whose agent has no ranks, and stands in for rank 0."""
    return replace(node(rank(0, frame, "poll"), world=1, launcher=100), host=host)


@pytest.mark.parametrize(("world", "ended"), [(3, (0, 2)), (4, ())])
def test_an_agent_whose_ranks_have_ended_well_stands_in_for_none(
    world: int, ended: tuple[int, ...]
) -> None:
    there = _host(rank(1, SLEEP, "clock_nanosleep"), "1", world)
    nodes = end_ranks_of_agents([agent(AGENT, "n1"), there, agent(AGENT, "n3")])
    (one,) = nodes
    assert one.launcher is None
    assert tuple(r.rank for r in one.ranks if r.left and r.status == 0) == ended
    assert "all ranks of n1, n3 have ended well" in one.notes
    verdict = judged(agent(AGENT, "n1"), there, agent(AGENT, "n3"))
    assert verdict.ranks.culprit == (1,)


def test_an_agent_that_is_elsewhere_or_one_among_agents_alone_stays() -> None:
    meets = Frame("SimpleElasticAgent._rendezvous", SITE + API, 500)
    for nodes in ([agent(meets, "n1"), waits(1)], [agent(AGENT, "n1"), agent(AGENT, "n2")]):
        assert end_ranks_of_agents(nodes) == nodes


def asked(
    monkeypatch: pytest.MonkeyPatch, *answers: tuple[str, NodeFacts | None, str]
) -> HostsAnswer:
    """What hosts say that a launcher reaches by ssh: a name, what is seen there, else why not."""

    async def ask(job: RemoteJob, limit: float) -> list[NodeAnswer]:
        return [
            NodeAnswer(Node(name, (), ""), facts, why, why == NO_JOB)
            for name, facts, why in answers
        ]

    async def resolve(names: Sequence[str]) -> dict[str, list[str]]:
        return {}

    monkeypatch.setattr(session, "ask_nodes", ask)
    monkeypatch.setattr(session, "_resolve", resolve)
    clients = tuple(SshClient(name, (), "python train.py") for name, _, _ in answers)
    return asyncio.run(session.ask_launched_hosts(Question(clients, 0, {})))


def test_hosts_that_a_launcher_reaches_give_one_verdict_or_say_who_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = _host(rank(1, SLEEP, "clock_nanosleep"), "1", 2)
    found = asked(monkeypatch, ("n1", waits(0, world=2), ""), ("n2", there, ""))
    assert found.judged is not None
    assert found.judged.verdict.ranks.culprit == (1,)
    moves = replace(there, moving=(1,))
    found = asked(monkeypatch, ("n1", waits(0, world=2), ""), ("n2", moves, ""))
    assert found.judged is None
    assert found.goes_on.startswith("rank 1 is at work")


def test_where_no_host_has_a_rank_that_is_said_and_daemons_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = replace(agent(SLEEP, "n1"), command=("orted", "-mca", "ess", "env"))
    found = asked(monkeypatch, ("n1", daemon, ""), ("n2", None, NO_JOB), ("n3", None, "no answer"))
    assert found.judged is None
    assert found.starts_nobody == (
        "no rank of the job runs on n1, n2",
        "n3 is not seen: no answer",
    )
    late = asked(monkeypatch, ("n2", None, NO_JOB), ("n3", None, "no answer within 20 s"))
    assert late.silent == {"n3": "no answer within 20 s"}
    nobody = asked(monkeypatch, ("n1", None, "Permission denied"))
    assert (nobody.starts_nobody, bool(nobody.trouble)) == ((), True)


REFUSED = "ssh: connect to host n3 port 22: Connection refused"


@pytest.mark.parametrize(
    ("addresses", "is_lost"),
    [
        ({"n3": ["10.0.0.3"]}, True),
        ({"n3": ["10.0.0.1"]}, False),  # a rank has a connection there: it is there, and not seen
        ({}, False),
    ],
)
def test_a_host_that_refuses_and_to_which_no_rank_is_connected_any_more_is_lost(
    addresses: dict[str, list[str]], is_lost: bool
) -> None:
    end = Socket(7, "tcp", "10.0.0.2:41234", "10.0.0.1:9100", "ESTABLISHED")
    there = waits(1)
    (one,) = there.ranks
    one = replace(one, looks=tuple(replace(look, sockets=(end,)) for look in one.looks))
    answers = (waits(0), replace(there, ranks=(one,)), None)
    found = judged(*answers, silent=True, why=REFUSED, addresses=addresses)
    assert (found.cause is not None and found.cause.id == "node-lost") is is_lost


def test_a_host_that_does_not_answer_and_to_which_nobody_is_connected_has_brought_no_rank() -> None:
    end = Socket(7, "tcp", "10.0.0.1:9100", "10.0.0.2:41234", "ESTABLISHED")
    store = Frame("_create_c10d_store", SITE + "torch/distributed/rendezvous.py", 199)
    there = [_host(rank(number, store, "poll"), "1", 3) for number in (0, 1)]
    ends = [
        replace(r, looks=tuple(replace(look, sockets=(end,)) for look in r.looks))
        for one in there
        for r in one.ranks
    ]
    answers = [replace(one, ranks=(r,)) for one, r in zip(there, ends, strict=True)]
    for addresses, cause in (({"n3": ["10.0.0.3"]}, "other-node-missing"), ({}, "")):
        found = judged(*answers, None, silent=True, addresses=addresses)
        assert (found.cause.id if found.cause else "") == cause
