"""Ranks that make the process group where the others never find them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.identity import RankId
from hangbisect.base.process_facts import Look, Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Verdict, Wait
from hangbisect.diagnosis.case import make_unseen_rank
from hangbisect.diagnosis.rendezvous_claims import find_rendezvous_mismatch
from hangbisect.diagnosis.single_ranks import explain_single_ranks
from hangbisect.diagnosis.verdict import judge_job_with_graph

from .made_up import GROUP, SLEEP, job, look, rank

AGENT = 77  # the launcher's process, which serves the store
TRIES = look(
    "_create_c10d_store SP/torch/distributed/rendezvous.py:190",
    "_env_rendezvous_handler SP/torch/distributed/rendezvous.py:280",
    "init_process_group SP/torch/distributed/distributed_c10d.py:1892",
    call="clock_nanosleep",
    ppid=AGENT,
)


def mismatch(ranks: list[RankFacts]) -> dict[RankId, Wait]:
    return find_rendezvous_mismatch(explain_single_ranks(ranks).ranks)


def connected(port: str, server: int = AGENT) -> Look:
    """A look at a rank that has reached a store."""
    socket = Socket(5, "tcp", "127.0.0.1:4", f"127.0.0.1:{port}", "ESTABLISHED", 192, 395)
    return replace(GROUP, ppid=AGENT, sockets=(replace(socket, peer_pids=(server,)),))


def serving(port: str) -> Look:
    """A look at a rank that serves the store itself."""
    return replace(
        GROUP, ppid=AGENT, sockets=(Socket(5, "tcp", f"0.0.0.0:{port}", state="LISTEN"),)
    )


def at(number: int, one: Look, port: str, **more: str) -> RankFacts:
    """A rank that was told this port."""
    told = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "RANK": str(number)} | more
    return rank(number, one, reached=11, environment=told)


def verdict(*ranks: RankFacts, **more: Any) -> Verdict:
    return judge_job_with_graph(job(world=len(ranks), **more), ranks)[0]


@pytest.mark.parametrize("lost", [(0,), (1,), (3,), (1, 2, 3), (0, 2)])
def test_who_looks_for_the_store_elsewhere_is_to_blame(lost: tuple[int, ...]) -> None:
    ranks = [
        at(n, TRIES, "1") if n in lost else at(n, connected("29500"), "29500") for n in range(4)
    ]
    found = verdict(*ranks)
    assert found.ranks.culprit == lost
    assert set(found.ranks.waiting) == set(range(4)) - set(lost)
    assert found.waits_for is not None
    assert (found.waits_for.kind, found.waits_for.what) == ("store", "localhost:1")


def test_a_name_that_means_another_machine_on_one_host_is_a_place_of_its_own() -> None:
    """All look at localhost:29500; rank 2 finds nobody there, and tries again and again."""
    ranks = [at(0, serving("29500"), "29500"), at(1, connected("29500", 100), "29500")]
    found = verdict(*ranks, replace(at(2, TRIES, "29500"), host="n02"))
    assert found.ranks.culprit == (2,)
    assert found.ranks.waiting == (0, 1)


def test_who_is_seen_at_a_try_slept_before() -> None:
    ranks = [at(0, serving("29500"), "29500"), at(1, connected("29500", 100), "29500")]
    (main,) = TRIES.kernel
    connects = replace(TRIES, at=103.0, kernel=(replace(main, syscall=None),))
    tries = rank(2, TRIES, connects, reached=11, environment=at(2, TRIES, "29500").environment)
    found = verdict(*ranks, replace(tries, host="n02"))
    assert found.ranks.culprit == (2,)


def test_who_has_not_come_to_the_store_yet_may_still_come() -> None:
    waits = replace(GROUP, ppid=AGENT)
    assert not mismatch([at(0, serving("29500"), "29500"), at(1, waits, "29500")])


def test_each_at_a_port_of_its_own_are_to_blame_but_for_the_one_that_serves() -> None:
    ranks = [at(0, serving("1"), "1"), *(at(n, TRIES, str(n + 5)) for n in (1, 2, 3))]
    assert verdict(*ranks).ranks.culprit == (1, 2, 3)


def test_a_rank_0_that_serves_where_none_of_the_others_looks_is_to_blame() -> None:
    ranks = [at(0, serving("1"), "1"), *(at(n, TRIES, "29500") for n in (1, 2, 3))]
    assert verdict(*ranks).ranks.culprit == (0,)


def test_who_talks_to_a_stranger_at_its_port_has_no_store() -> None:
    ranks = [at(0, connected("29500"), "29500"), at(1, connected("80", server=4242), "80")]
    assert verdict(*ranks).ranks.culprit == (1,)


def test_another_name_of_the_same_place_is_none() -> None:
    ranks = [at(n, connected("29500"), "29500", MASTER_ADDR=f"n{n}") for n in range(3)]
    assert mismatch(ranks) == {}
    slow = [at(0, serving("29500"), "29500"), at(1, TRIES, "29500", MASTER_ADDR="127.0.0.1")]
    assert mismatch(slow) == {}


def test_who_cannot_connect_before_rank_0_serves_only_waits() -> None:
    ranks = [rank(0, SLEEP, reached=10), *(at(n, TRIES, "29500") for n in (1, 2))]
    found = verdict(*ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((0,), (1, 2))


@pytest.mark.parametrize("twins", [{1: 0}, {1: 0, 2: 0, 3: 0}, {3: 1}, {0: 2}])
def test_who_comes_as_another_rank_is_to_blame(twins: dict[int, int]) -> None:
    ranks = [at(n, connected("29500"), "29500", RANK=str(twins.get(n, n))) for n in range(4)]
    found = verdict(*ranks)
    assert found.ranks.culprit == tuple(twins)
    assert set(found.ranks.waiting) == set(range(4)) - set(twins)


def test_two_processes_of_a_node_that_come_as_one_rank_are_to_blame() -> None:
    """The node's monitor has heard both; on the other node are 0 and 1, and nobody is 3."""
    twins = replace(at(2, connected("29500"), "29500"), twin=27, host="n02")
    ranks = [at(n, connected("29500"), "29500") for n in range(2)]
    found = judge_job_with_graph(job(world=4, local_ranks=(0, 1, 2)), [*ranks, twins])[0]
    assert (found.ranks.culprit, found.ranks.waiting) == ((2,), (0, 1))
    launched = judge_job_with_graph(job(world=4), [*ranks, twins])[0]  # 3 is missed on a node
    assert (launched.ranks.culprit, launched.ranks.waiting) == ((2,), (0, 1))
    alone = judge_job_with_graph(job(world=4, local_ranks=(2,)), [twins])[0]
    assert alone.ranks.culprit == (2,)


def test_what_torch_was_given_counts_before_the_variables() -> None:
    def told(one: Look, **values: str) -> Look:
        main = one.threads[0]
        frames = tuple(
            replace(f, locals=tuple(values.items())) if f.name == "init_process_group" else f
            for f in main.frames
        )
        return replace(one, threads=(replace(main, frames=frames),))

    ranks = [at(n, told(connected("29500"), rank=str(n)), "29500", RANK="0") for n in range(2)]
    assert mismatch(ranks) == {}
    by_address = told(TRIES, init_method='"tcp://10.0.0.9:1"')
    ranks = [at(0, connected("29500"), "29500"), at(1, by_address, "29500")]
    assert mismatch(ranks)[1].what == "10.0.0.9:1"
    by_file = told(TRIES, init_method='"file:///tmp/x"')
    assert mismatch([at(0, connected("29500"), "29500"), at(1, by_file, "1")]) == {}


# ---- a node alone, without rank 0 ----------------------------------------------------------------


def on_its_own(*ranks: RankFacts, masters: tuple[str, ...] = ()) -> Verdict:
    """What a node says whose ranks these are, of four."""
    here = tuple(one.rank for one in ranks)
    facts = job(world=4, local_ranks=here, master_addresses=masters)
    return judge_job_with_graph(facts, ranks)[0]


@pytest.mark.parametrize(
    ("name", "masters"), [("trainhead", ("127.0.0.1", "::1")), ("127.0.1.1", ()), ("localhost", ())]
)
def test_who_looks_for_rank_0_on_its_own_machine_is_to_blame_where_that_is_not_there(
    name: str, masters: tuple[str, ...]
) -> None:
    found = on_its_own(at(2, TRIES, "29500", MASTER_ADDR=name), masters=masters)
    assert found.ranks.culprit == (2,)
    assert found.cause is not None
    assert found.cause.id in ("nobody-serves-the-store", "master-is-loopback")
    assert "this machine" in str(found.waits_for)


def test_on_the_machine_of_rank_0_it_may_be_late() -> None:
    found = on_its_own(at(0, TRIES, "29500"), at(1, TRIES, "29500"))
    assert found.ranks.culprit == ()


def test_a_name_that_also_means_another_machine_is_no_fault() -> None:
    ranks = [at(2, TRIES, "29500", MASTER_ADDR="trainhead")]
    found = on_its_own(*ranks, masters=("127.0.1.1", "10.0.0.1"))
    assert found.ranks.culprit == ()
    assert on_its_own(*ranks).ranks.culprit == ()


def test_who_has_found_a_store_on_its_own_machine_waits_for_others() -> None:
    """An agent of torchrun serves one on each node where --master-addr is the machine itself."""
    assert on_its_own(at(2, connected("29500"), "29500")).ranks.culprit == ()


def of_group(one: Look, number: int, world: int) -> Look:
    """The same look, whose frames say which rank it is to be, of how many."""
    values = (("rank", str(number)), ("world_size", str(world)))
    main = one.threads[0]
    frames = tuple(
        replace(f, locals=values) if f.name == "init_process_group" else f for f in main.frames
    )
    return replace(one, threads=(replace(main, frames=frames),))


def test_a_process_below_a_rank_that_makes_the_same_group_as_another_rank_has_come() -> None:
    """A trainer, and of an engine that it started one worker of two: the other one never came."""
    waits = of_group(replace(TRIES, ppid=1), 0, 3)
    worker = replace(of_group(TRIES, 1, 3), pid=300, ppid=100)
    trainer = rank(0, waits, environment={"WORLD_SIZE": "3"}, children=((worker,),))
    alone = verdict(replace(trainer, children=()), ended="still")
    assert alone.ranks.never_started == (1, 2)
    assert verdict(trainer, ended="still").ranks.never_started == (2,)
    unseen = [make_unseen_rank(number, "n01") for number in (1, 2)]
    assert verdict(trainer, *unseen, ended="still").ranks.never_started == (2,)
    elsewhere = replace(of_group(TRIES, 1, 2), pid=300, ppid=100)  # a group of its own
    found = verdict(replace(trainer, children=((elsewhere,),)), ended="still")
    assert found.ranks.never_started == (1, 2)
