"""An agent of torchrun's waits for those of other nodes before it starts a rank: who has come is
told by its connections. Frames and sockets as torchrun 2.13 showed them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Descriptor, Look, Socket
from hangbisect.diagnosis.other_nodes import (
    cannot_meet,
    compare_agents,
    find_node_wait,
    list_agents_lost_at_end,
    list_disagreements,
    meets_elsewhere,
)
from hangbisect.diagnosis.process.process_snapshot import merge_looks

from .causes.scenes import causes_of
from .made_up import job, look, rank

_ELASTIC = "SP/torch/distributed/elastic"
_AGENT = (
    f"SimpleElasticAgent._rendezvous {_ELASTIC}/agent/server/api.py:528",
    f"SimpleElasticAgent._initialize_workers {_ELASTIC}/agent/server/api.py:713",
    f"SimpleElasticAgent.run {_ELASTIC}/agent/server/api.py:745",
    "launch_agent SP/torch/distributed/launcher/api.py:374",
)
JOINING = (
    f"_delay {_ELASTIC}/rendezvous/utils.py:181",
    f"_DistributedRendezvousOpExecutor.run {_ELASTIC}/rendezvous/dynamic_rendezvous.py:685",
    f"DynamicRendezvousHandler.next_rendezvous {_ELASTIC}/rendezvous/dynamic_rendezvous.py:1171",
    *_AGENT,
)
CONNECTING = (
    f"StaticTCPRendezvous.next_rendezvous {_ELASTIC}/rendezvous/static_tcp_rendezvous.py:67",
    *_AGENT,
)
C10D = ("torchrun", "--nnodes=3", "--rdzv-backend=c10d", "--rdzv-endpoint=n01:29655", "train.py")
STATIC = ("torchrun", "--nnodes", "2", "--node-rank=1", "--master-addr=n01", "--master-port=29655")
LISTENS = Socket(1, "tcp6", local="[::]:29655", peer="", state="LISTEN")
MINE = Socket(2, "tcp6", local="10.0.0.1:57836", peer="10.0.0.1:29655", state="ESTABLISHED")
SERVED = Socket(3, "tcp6", local="10.0.0.1:29655", peer="10.0.0.1:57836", state="ESTABLISHED")
OTHER = Socket(4, "tcp6", local="10.0.0.1:29655", peer="10.0.0.2:40100", state="ESTABLISHED")


def agent(command: tuple[str, ...], *frames: str, sockets: tuple[Socket, ...] = ()) -> Look:
    made = look(*frames, call="clock_nanosleep", sockets=sockets)
    return replace(made, command=command)


def said(one: Look) -> str:
    view = merge_looks([one])
    assert view is not None
    wait = find_node_wait(view)
    return wait.detail if wait is not None else ""


OWN = ("torchrun", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29655", "a.py")
LOCAL = Socket(2, "tcp", local="127.0.0.1:57836", peer="127.0.0.1:29655", state="ESTABLISHED")
HEARD = Socket(3, "tcp", local="127.0.0.1:29655", peer="127.0.0.1:57836", state="ESTABLISHED")


def test_agents_that_each_meet_on_their_own_machine_never_meet() -> None:
    one = agent(OWN, *JOINING, sockets=(LISTENS, LOCAL, HEARD))
    assert cannot_meet({"n1": [one], "n2": [one]})
    assert not cannot_meet({"n1": [one]})
    of_three = replace(one, command=("torchrun", "--nnodes=3", *OWN[2:]))
    assert not cannot_meet({"n1": [of_three], "n2": [of_three]})  # one more is told of as well
    (note,) = compare_agents({"n1": [one], "n2": [one]})[1]
    assert note == "localhost:29655 is each machine itself: n1, n2 each wait there for the others"
    cause = causes_of((job("still"), [rank(0, one)]))["nodes-not-joined"]
    assert "localhost is each machine itself" in cause.why


def test_who_asks_a_name_server_meets_nobody_yet() -> None:
    asks = Socket(5, "udp", local="10.0.0.1:58268", peer="10.0.0.53:53", state="ESTABLISHED")
    named = Descriptor(9, "socket", "socket:[5]", socket=asks)
    one = look(*CONNECTING, call="poll", descriptors=(named,), sockets=(asks,))
    assert said(replace(one, command=C10D)) == ""


def test_the_node_that_serves_the_store_knows_who_has_come() -> None:
    alone = agent(C10D, *JOINING, sockets=(LISTENS, MINE, SERVED))
    assert said(alone) == "1 of 3 nodes is at the rendezvous n01:29655: this one"
    two = agent(C10D, *JOINING, sockets=(LISTENS, MINE, SERVED, OTHER))
    assert said(two) == "2 of 3 nodes are at the rendezvous n01:29655: this one, 10.0.0.2"


def test_a_node_with_two_connections_is_one() -> None:
    again = replace(OTHER, inode=5, peer="10.0.0.2:40200")
    two = agent(C10D, *JOINING, sockets=(LISTENS, MINE, SERVED, OTHER, again))
    assert said(two).startswith("2 of 3 nodes are")


def test_two_agents_of_one_machine_are_two() -> None:
    """As on one machine with several nodes of a test, or containers that share a network."""
    other = replace(OTHER, peer="10.0.0.1:40100", peer_pids=(77,))
    two = agent(C10D, *JOINING, sockets=(LISTENS, MINE, replace(SERVED, peer_pids=(100,)), other))
    assert said(two).startswith("2 of 3 nodes are")


def test_another_node_knows_only_that_the_first_answers() -> None:
    one = agent(C10D, *JOINING, sockets=(replace(MINE, local="10.0.0.2:40100"),))
    assert said(one) == "3 nodes meet at the rendezvous n01:29655, and not all have come: ask there"


@pytest.mark.parametrize("sockets", [(), (replace(MINE, state="SYN_SENT"),)])
def test_where_the_store_does_not_answer_that_is_said(sockets: tuple[Socket, ...]) -> None:
    one = agent(STATIC, *CONNECTING, sockets=sockets)
    assert said(one) == "the rendezvous n01:29655 of 2 nodes, which does not answer"


def test_an_agent_whose_ranks_run_and_any_other_process_waits_for_no_node() -> None:
    running = (
        f"SimpleElasticAgent._monitor_workers {_ELASTIC}/agent/server/local_elastic_agent.py:9"
    )
    for one in (agent(C10D, running, *_AGENT[1:]), look("main train.py:3")):
        assert said(one) == ""


def test_a_range_of_nodes_is_told_by_its_least() -> None:
    elastic = ("torchrun", "--nnodes=2:4", *C10D[2:])
    one = agent(elastic, *JOINING, sockets=(LISTENS, MINE, SERVED))
    assert said(one).startswith("1 of 2 nodes is")


def test_an_unknown_number_of_nodes_is_left_out() -> None:
    bare = ("python", "-m", "my_launcher")
    one = agent(bare, *JOINING, sockets=(LISTENS, MINE, SERVED))
    assert said(one) == "1 node is at the rendezvous 10.0.0.1:29655: this one"


# ---- causes --------------------------------------------------------------------------------------


def test_nodes_that_have_not_come_are_the_cause() -> None:
    one = agent(C10D, *JOINING, sockets=(LISTENS, MINE, SERVED))
    found = causes_of((job("still", 1), [rank(0, one, reached=-1)]))
    assert set(found) & {"nodes-not-joined", "rendezvous-unreachable"} == {"nodes-not-joined"}
    assert "1 of 3 nodes" in found["nodes-not-joined"].why


def test_a_store_that_does_not_answer_is_another_cause() -> None:
    one = agent(STATIC, *CONNECTING)
    found = causes_of((job("still", 1), [rank(0, one, reached=-1)]))
    assert set(found) & {"nodes-not-joined", "rendezvous-unreachable"} == {"rendezvous-unreachable"}


# ---- agents of several nodes, seen together ------------------------------------------------------


def words(*more: str) -> tuple[str, ...]:
    return ("torchrun", "--master-addr=n01", "--master-port=29655", *more, "train.py", "--nnodes=9")


def test_a_node_rank_that_two_nodes_have_is_told() -> None:
    found = list_disagreements(
        {"a": words("--nnodes=2", "--node-rank=0"), "b": words("--nnodes=2", "--node_rank", "0")}
    )
    assert found == ["--node-rank is 0 on a and on b: each node needs its own"]


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("--nnodes=2", "--nnodes=3", "--nnodes is 2 on a and 3 on b"),
        ("--rdzv-id=x", "--rdzv_id=y", "--rdzv-id is x on a and y on b"),
        ("--rdzv-endpoint=a:1", "--rdzv-endpoint=a:2", "--rdzv-endpoint is a:1 on a and a:2 on b"),
        ("--rdzv-backend=c10d", "", "--rdzv-backend is c10d on a and not given on b"),
    ],
)
def test_what_agents_have_to_have_in_common_and_have_not_is_told(
    one: str, other: str, told: str
) -> None:
    found = list_disagreements({"a": words(one), "b": words(*filter(None, [other]))})
    assert found == [f"{told}: the nodes do not meet, or count one another wrong"]


def test_nothing_is_told_of_agents_that_agree() -> None:
    agents = {f"n{k}": words("--nnodes=3", f"--node-rank={k}") for k in range(3)}
    assert list_disagreements(agents) == []
    assert list_disagreements({"a": words("--nnodes=3")}) == []
    assert list_disagreements({}) == []


@pytest.mark.parametrize(
    ("one", "other", "is_sure"),
    [
        ("--nnodes=2", "--nnodes=3", True),
        ("--rdzv-id=x", "--rdzv-id=y", True),
        ("--node-rank=1", "--node-rank=1", True),
        ("--node-rank=0", "--node-rank=1", False),
        # A name and an address may be one machine; without one torchrun takes its default.
        ("--rdzv-endpoint=n1:1", "--rdzv-endpoint=10.0.0.1:1", False),
        ("--rdzv-endpoint=n1:1", "--rdzv-endpoint=10.0.0.1:2", True),
        ("--rdzv-endpoint=n1", "--rdzv-endpoint=n1:29400", False),  # torch's port
    ],
)
def test_whoever_waits_longer_for_agents_that_cannot_meet_waits_in_vain(
    one: str, other: str, is_sure: bool
) -> None:
    agents = {
        host: [agent((*words(flag), "train.py"), *CONNECTING, sockets=(MINE,))]
        for host, flag in (("a", one), ("b", other))
    }
    assert cannot_meet(agents) is is_sure


def test_a_store_of_several_servers_may_be_asked_at_different_ports() -> None:
    ports = ("--rdzv-endpoint=n1:2379", "--rdzv-endpoint=n2:2380")
    agents = {
        host: [agent((*words("--rdzv-backend=etcd-v2"), place, "train.py"), *CONNECTING)]
        for host, place in zip("ab", ports, strict=True)
    }
    assert not cannot_meet(agents)


def test_an_agent_that_is_answered_at_another_port_is_of_another_job() -> None:
    other = tuple(word.replace("29655", "29700") for word in STATIC)
    ours = [agent(STATIC, *CONNECTING, sockets=(LISTENS, MINE))]
    answered = replace(MINE, peer=MINE.peer.replace("29655", "29700"))
    theirs = [agent(other, *CONNECTING, sockets=(answered,))]
    assert meets_elsewhere(theirs, ours)
    assert not meets_elsewhere([agent(other, *CONNECTING)], ours)  # perhaps a wrong port
    assert not meets_elsewhere([agent(STATIC, *CONNECTING, sockets=(MINE,))], ours)
    assert not meets_elsewhere(theirs, ())


# ---- agents of several nodes ---------------------------------------------------------------------


def static(number: int, size: int = 4) -> tuple[str, ...]:
    own = (*STATIC[:1], "--nnodes", str(size), f"--node-rank={number}", *STATIC[4:])
    return (*own, "train.py")


def test_of_agents_that_wait_for_one_another_the_one_that_serves_tells_most() -> None:
    away = replace(MINE, local="10.0.0.2:40100")
    serving = agent(static(0), *CONNECTING, sockets=(LISTENS, MINE, SERVED, OTHER))
    asking = agent(static(1), *CONNECTING, sockets=(away,))
    assert compare_agents({"n2": [asking], "n1": [serving]})[0] == "n1"
    assert compare_agents({"n2": [asking]})[0] == "n2"


def test_a_launcher_that_stands_still_elsewhere_comes_before_all_who_wait_for_it() -> None:
    serving = agent(static(0), *CONNECTING, sockets=(LISTENS, MINE, SERVED))
    importing = agent(static(1), "<module> SP/torch/__init__.py:12", "<module> torchrun:3")
    assert compare_agents({"n1": [serving], "n2": [importing]})[0] == "n2"


def test_the_node_rank_that_nobody_has_is_named() -> None:
    asking = {f"n{one}": [agent(static(one), *CONNECTING, sockets=(MINE,))] for one in (0, 1, 3)}
    _, notes = compare_agents(asking)
    assert notes == ["none of the 3 nodes that are seen has --node-rank 2"]


@pytest.mark.parametrize(
    "commands",
    [
        (C10D, C10D),  # they are numbered as they come
        (static(0, 2), static(0, 2)),  # that is a disagreement of its own
        (static(0, 2), static(1, 2)),
        (static(0, 3), static(1, 4)),
        (("torchrun", "--nnodes", "1:4", "--node-rank=0", *STATIC[4:]),),
    ],
)
def test_no_node_rank_is_missed_where_numbers_do_not_tell(commands: tuple[tuple[str, ...]]) -> None:
    agents = {str(n): [agent(c, *CONNECTING, sockets=(MINE,))] for n, c in enumerate(commands)}
    assert not any("none of" in note for note in compare_agents(agents)[1])


AT_END = (
    f"barrier {_ELASTIC}/utils/store.py:201",
    f"SimpleElasticAgent._exit_barrier {_ELASTIC}/agent/server/api.py:994",
)
HOSTS = {"n02": "10.0.0.2", "n03": "::ffff:10.0.0.3"}


def test_an_agent_that_is_past_its_ranks_knows_whose_agents_are_connected_no_more() -> None:
    serves = agent(C10D, *AT_END, sockets=(LISTENS, MINE, SERVED, OTHER))
    (words,) = list_agents_lost_at_end([serves], HOSTS)
    assert words.startswith("no agent is connected any more from n03: 2 of 3 nodes")


@pytest.mark.parametrize(
    "one",
    [
        agent(
            C10D, *AT_END, sockets=(LISTENS, MINE, SERVED, OTHER, replace(OTHER, peer="10.0.0.3:1"))
        ),
        agent(C10D, *AT_END, sockets=(MINE,)),  # another node serves
        agent(C10D, *JOINING, sockets=(LISTENS, MINE, SERVED, OTHER)),
    ],
)
def test_nobody_is_missed_at_the_end_where_all_are_connected_or_who_serves_is_elsewhere(
    one: Look,
) -> None:
    assert list_agents_lost_at_end([one], HOSTS) == []
