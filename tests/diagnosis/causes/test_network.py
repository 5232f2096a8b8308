"""Addresses, names, interfaces, proxies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.identity import ProcessId
from hangbisect.base.process_facts import Descriptor, Kernel, Socket, Syscall, Thread
from hangbisect.base.rank_facts import MachineFacts
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.doctor.interfaces import Interface, chosen, gloo
from hypothesis import given
from hypothesis import strategies as st

from ...doctor.made_up import levels, setting
from ..made_up import ALL_REDUCE, GROUP, RECV, SLEEP, gone, job, look, rank, stack
from .scenes import (
    MAKES_GROUP,
    MAKES_STORE,
    TORCHRUN,
    Facts,
    Shows,
    causes_of,
    on,
    tcp,
    with_native,
)

FAR = {**TORCHRUN, "MASTER_ADDR": "10.255.255.1"}
INTERFACES = MachineFacts(interfaces=("lo", "eth0", "docker0"))
UP = tuple(Interface(name, addresses=("10.0.0.5",)) for name in INTERFACES.interfaces)
# Of the pieces that a value is made of, so that many values fit an interface.
VALUES = st.lists(st.sampled_from(["^", "=", ",", ":1", "e", "eth", "eth0", "lo", "ib0"])).map(
    "".join
)


def master_unroutable() -> Facts:
    asked = tcp("10.255.255.1:29500", "SYN_SENT")
    one = look(*MAKES_STORE, call="poll", descriptors=on(asked), sockets=(asked,))
    return job(), [rank(0, GROUP, environment=TORCHRUN), rank(1, one, environment=FAR)]


def nobody_serves_the_store() -> Facts:
    one = look(*MAKES_STORE, call="clock_nanosleep")
    return job(), [rank(1, one, environment={**TORCHRUN, "RANK": "1"})]


LISTENS = Socket(80, "tcp", local="10.0.0.1:9020", state="LISTEN")
TAKEN = Socket(81, "tcp", local="10.0.0.1:9020", peer="10.0.0.1:41000", state="ESTABLISHED")


def test_a_server_of_one_thread_that_stands_in_a_handler_takes_no_other_connection() -> None:
    server = "STD/socketserver.py"
    frames = stack(
        "Barrier.wait STD/threading.py:697",
        "meet train.py:19",
        f"BaseServer._handle_request_noblock {server}:317",
        f"BaseServer.serve_forever {server}:238",
    )
    facts, ranks = connections_not_taken()
    looks = [
        replace(
            one,
            threads=(*one.threads, Thread(909, "serve", False, False, frames)),
            kernel=tuple(task for task in one.kernel if task.tid != 909),
        )
        for one in ranks[2].looks
    ]
    found = causes_of((facts, [*ranks[:2], replace(ranks[2], looks=tuple(looks)), *ranks[3:]]))
    assert "it stands in meet (train.py:19)" in found["connections-not-taken"].why


def connections_not_taken(*taken: Socket) -> Facts:
    """Ranks 1 and 3 send to rank 2, a thread of which reads from rank 0 alone."""
    meets = look("all_reduce SP/torch/distributed/distributed_c10d.py:3252", "main train.py:62")
    reads = Kernel(909, "python", "S", "", Syscall(45, "recvfrom", (9,), descriptors=on(TAKEN)))
    serves = replace(meets, sockets=(LISTENS, TAKEN, *taken))
    sent = [_sent_by(number) for number in (1, 3)]
    sends = [look("send log.py:6", call="sendto", descriptors=on(one)) for one in sent]
    server = rank(2, serves)
    looks = tuple(replace(one, kernel=(*one.kernel, reads)) for one in server.looks)
    ranks = [rank(0, meets), rank(1, sends[0]), replace(server, looks=looks), rank(3, sends[1])]
    return job(world=4), ranks


def server_of_one_client(taken: bool = False, threads: int = 1) -> Facts:
    """Rank 0 has asked the metrics server that it has started, which reads from a monitor."""
    listens = Socket(3, "tcp", local="127.0.0.1:8000", state="LISTEN")
    kept = Socket(
        *(8, "tcp", "127.0.0.1:8000", "127.0.0.1:41000", "ESTABLISHED"),
        peer_pids=(301,),
        peer_names=("monitor",),
    )
    end = Socket(9, "tcp", "127.0.0.1:8000", "127.0.0.1:42000", "ESTABLISHED", peer_pids=(100,))
    asked = Socket(7, "tcp", "127.0.0.1:42000", "127.0.0.1:8000", "ESTABLISHED", peer_pids=(300,))
    asks = look("getresponse STD/http/client.py:1386", "get train.py:46", call="recvfrom")
    (task,) = look(call="recvfrom", descriptors=on(asked)).kernel
    asks = replace(asks, kernel=(task,), sockets=(asked,))
    server = look(
        "readinto STD/socket.py:706",
        "handle_one_request STD/http/server.py:404",
        "serve_forever STD/socketserver.py:238",
        "run_server train.py:35",
        pid=300,
        ppid=100,
        call="recvfrom",
        descriptors=on(kept),
        sockets=(listens, kept, *([end] if taken else [])),
    )
    server = replace(server, threads=server.threads * threads)
    monitor = look("wait STD/threading.py:327", "run_monitor train.py:60", pid=301, ppid=100)
    one = rank(0, asks, children=((server,), (monitor,)), environment={})
    return job(world=1), [one]


def test_a_server_that_has_taken_the_connection_or_has_more_threads_serves_several() -> None:
    assert "server-of-one-client" not in causes_of(server_of_one_client(taken=True))
    assert "server-of-one-client" not in causes_of(server_of_one_client(threads=2))
    found = causes_of(server_of_one_client())["server-of-one-client"]
    assert "of monitor" in found.why
    assert "port 8000" in found.why


def _sent_by(number: int) -> Socket:
    own, server = f"10.0.0.1:4100{number}", "10.0.0.1:9020"
    return Socket(90 + number, "tcp", local=own, peer=server, state="ESTABLISHED", peer_pids=(102,))


def no_such_interface() -> Facts:
    error = "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:39] ifa != nullptr. "
    error += "Unable to find address for: nope0"
    wrong = {**TORCHRUN, "GLOO_SOCKET_IFNAME": "nope0"}
    ranks = [gone(n, 1, error, environment=wrong, left_at=90.0) for n in (0, 1)]
    return job("crash", machine=INTERFACES), ranks


def name_server_silent() -> Facts:
    asked = Socket(72, "udp", "10.0.0.2:5000", "10.0.0.53:53", "ESTABLISHED")
    one = look(*MAKES_STORE, call="poll", descriptors=on(asked), sockets=(asked,))
    one = with_native(one, "__poll", "send_dg", "__res_context_send", "getnameinfo")
    machine = MachineFacts(nameservers=("10.0.0.53",))
    return job(machine=machine), [rank(n, one, environment=TORCHRUN) for n in (0, 1)]


def name_unknown() -> Facts:
    error = "DistNetworkError: The client socket cannot be initialized to connect to [node0]:29500 "
    error += "(errno: 22): Name or service not known"
    return job("crash"), [gone(1, 1, error, left_at=90.0), rank(0, GROUP)]


SAID = (
    "[W1129 01:33:26 socket.cpp:764] [c10d] The IPv6 network addresses of (%s, 29500) cannot be "
    "retrieved (gai error: -2 - Name or service not known)."
)


@pytest.mark.parametrize(
    ("of", "cause"), [("n1.site", "name-unknown"), ("db.site", "nobody-serves-the-store")]
)
def test_a_store_at_a_name_that_nothing_here_knows_is_not_missing_but_not_found(
    of: str, cause: str
) -> None:
    environment = {**TORCHRUN, "RANK": "1", "MASTER_ADDR": "n1.site"}
    one = look(*MAKES_STORE, call="clock_nanosleep")
    found = causes_of((job(), [rank(1, one, environment=environment, output=(SAID % of,))]))
    assert next(iter(found)) == cause
    assert "name-unknown" not in found or cause == "name-unknown"


def proxy_silent() -> Facts:
    proxy = tcp("10.1.1.1:3128", received=0)
    one = look(
        "SSLSocket.read STD/ssl.py:1166",
        "SyncStream.read SP/httpcore/_backends/sync.py:128",
        "Client.send SP/httpx/_client.py:914",
        "_httpx_follow SP/huggingface_hub/utils/_http.py:523",
        "<module> train.py:9",
        call="poll",
        descriptors=on(proxy),
        sockets=(proxy,),
    )
    through = {**TORCHRUN, "HTTPS_PROXY": "http://10.1.1.1:3128"}
    return job(), [rank(n, one, environment=through) for n in (0, 1)]


def peer_unreachable() -> Facts:
    asked = tcp("172.17.0.1:41234", "SYN_SENT")
    one = look(*MAKES_GROUP, call="futex", sockets=(asked,))
    one = with_native(
        one, "gloo::transport::tcp::Pair::waitUntilConnected", "gloo::connectFullMesh"
    )
    return job(), [rank(n, one, environment=TORCHRUN) for n in (0, 1)]


FIRST_END, OTHER_END = "10.0.0.1:40000", "10.0.0.2:29501"


def connected(end: str, other: str, host: str, pid: int, resent: int = 0) -> Socket:
    """One end of a connection to a process on another host."""
    there = ProcessId(host, pid)
    return Socket(71, "tcp", end, other, "ESTABLISHED", resent=resent, remote=there)


def network_between_nodes() -> Facts:
    """What rank 0 sends is not acknowledged; rank 1, on the other node, waits in the same call."""
    sends = replace(ALL_REDUCE, sockets=(connected(FIRST_END, OTHER_END, "n2", 101, resent=5),))
    hears = replace(ALL_REDUCE, sockets=(connected(OTHER_END, FIRST_END, "n1", 100),))
    return job(), [rank(0, sends, sends, host="n1"), rank(1, hears, hears, host="n2")]


@pytest.mark.parametrize("others", [("ESTABLISHED", 0), ("ESTABLISHED", 4), ("", 0)])
def test_who_asks_for_a_port_in_vain_is_named_where_other_connections_get_through(
    others: tuple[str, int],
) -> None:
    """A firewall on the way to one port; where nothing gets through nobody is to blame."""
    asked = replace(connected(FIRST_END, OTHER_END, "n2", 101, resent=5), state="SYN_SENT")
    state, resent = others
    first, second = FIRST_END.replace(":4", ":5"), OTHER_END.replace(":9", ":8")
    store = [connected(first, second, "n2", 101, resent=resent)] if state else []
    asks = look("fetch t.py:4", call="connect", descriptors=on(asked), sockets=(asked, *store))
    hears = replace(ALL_REDUCE, sockets=())
    ranks = [rank(0, asks, asks, host="n1"), rank(1, hears, hears, host="n2")]
    found = judge_job(job(), ranks)
    assert found.cause is not None
    assert found.cause.id == "network-between-nodes"
    assert found.ranks.culprit == ((0,) if others == ("ESTABLISHED", 0) else ())


def hostname_is_loopback() -> Facts:
    error = "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no "
    error += "error: Connection refused, remote=[127.0.1.1]:2345"
    ranks = [gone(n, 1, error, left_at=90.0) for n in (0, 1)]
    return job("crash", world=4, local_ranks=(0, 1)), ranks


SHOWS: Shows = {
    "network-between-nodes": network_between_nodes,
    "master-unroutable": master_unroutable,
    "nobody-serves-the-store": nobody_serves_the_store,
    "connections-not-taken": connections_not_taken,
    "server-of-one-client": server_of_one_client,
    "no-such-interface": no_such_interface,
    "name-server-silent": name_server_silent,
    "name-unknown": name_unknown,
    "proxy-silent": proxy_silent,
    "peer-unreachable": peer_unreachable,
    "hostname-is-loopback": hostname_is_loopback,
}


def test_ranks_of_one_node_may_meet_over_its_own_address() -> None:
    _, ranks = hostname_is_loopback()
    assert "hostname-is-loopback" not in causes_of((job("crash"), ranks))


def test_nodes_that_are_seen_together_meet_over_addresses_of_their_own() -> None:
    _, ranks = hostname_is_loopback()
    apart = [replace(one, host=f"n{number}") for number, one in enumerate(ranks)]
    assert "hostname-is-loopback" in causes_of((job("crash"), apart))


def test_a_connection_that_is_made_is_no_unroutable_master() -> None:
    made = tcp("10.255.255.1:29500")
    one = look(*MAKES_STORE, call="poll", descriptors=on(made), sockets=(made,))
    ranks = [rank(0, GROUP, environment=TORCHRUN), rank(1, one, environment=FAR)]
    assert "master-unroutable" not in causes_of((job(), ranks))


def test_a_master_that_listens_and_waits_serves_its_store() -> None:
    listens = Socket(5, "tcp6", "[::]:29500", "", "LISTEN")
    one = look(*MAKES_STORE, call="clock_nanosleep", sockets=(listens,))
    ranks = [rank(0, one, environment={**TORCHRUN, "RANK": "0"})]
    assert "nobody-serves-the-store" not in causes_of((job(), ranks))


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("GLOO_SOCKET_IFNAME", "eth0", False),
        ("GLOO_SOCKET_IFNAME", "^lo,docker", True),  # what only NCCL understands
        ("GLOO_SOCKET_IFNAME", "eth0,lo", False),
        ("NCCL_SOCKET_IFNAME", "eth", False),
        ("NCCL_SOCKET_IFNAME", "=eth", True),
        ("NCCL_SOCKET_IFNAME", "=eth0", False),
        ("NCCL_SOCKET_IFNAME", "^docker,lo", False),
        ("NCCL_SOCKET_IFNAME", "^docker,lo,eth", True),
        ("NCCL_SOCKET_IFNAME", "ib", True),
        ("NCCL_SOCKET_IFNAME", "=eth0:1", False),  # a port may follow
        ("NCCL_SOCKET_IFNAME", "x", False),  # one character alone counts as not set
        ("GLOO_SOCKET_IFNAME", "x", False),
    ],
)
def test_interfaces_are_named_in_two_languages(name: str, value: str, wrong: bool) -> None:
    assert names_no_interface(name, value) == wrong


def names_no_interface(name: str, value: str) -> bool:
    """Return whether a value is found to be the cause, where there are INTERFACES."""
    ranks = [rank(n, GROUP, environment={**TORCHRUN, name: value}) for n in (0, 1)]
    return "no-such-interface" in causes_of((job(machine=INTERFACES), ranks))


@given(VALUES)
def test_a_value_means_the_same_to_a_verdict_and_to_doctor(value: str) -> None:
    assert names_no_interface("NCCL_SOCKET_IFNAME", value) == (not chosen(value, UP))
    said = levels(gloo, UP, setting(GLOO_SOCKET_IFNAME=value))
    assert names_no_interface("GLOO_SOCKET_IFNAME", value) == (said == ["problem"])


def test_an_interface_is_not_missing_where_interfaces_are_not_known() -> None:
    ranks = [rank(n, GROUP, environment={**TORCHRUN, "NCCL_SOCKET_IFNAME": "ib0"}) for n in (0, 1)]
    assert "no-such-interface" not in causes_of((job(), ranks))


def test_a_server_that_no_variable_names_is_no_proxy() -> None:
    facts, ranks = proxy_silent()
    direct = [replace(r, environment=TORCHRUN) for r in ranks]
    found = causes_of((facts, direct))
    assert "proxy-silent" not in found
    assert found["hub-silent"].agreement > 0.8


def test_a_proxy_by_name_is_told_by_its_port() -> None:
    facts, ranks = proxy_silent()
    named = [replace(r, environment={"https_proxy": "proxy.cluster:3128"}) for r in ranks]
    assert "proxy-silent" in causes_of((facts, named))
    other = [replace(r, environment={"https_proxy": "proxy.cluster:8080"}) for r in ranks]
    assert "proxy-silent" not in causes_of((facts, other))


def test_reading_from_a_server_is_no_look_up() -> None:
    one = replace(RECV, sockets=tuple(d.socket for d in on(tcp("10.0.0.1:443")) if d.socket))
    assert "name-server-silent" not in causes_of((job(), [rank(0, one)]))


def test_a_descriptor_that_is_no_socket_is_no_network() -> None:
    file = Descriptor(3, "file", "/data/53")
    one = look("read train.py:3", call="read", descriptors=(file,))
    assert causes_of((job(world=1), [rank(0, one)])) == {}


# ---- the network between two nodes ---------------------------------------------------------------


def test_nobody_is_to_blame_for_the_network_between_two_nodes() -> None:
    facts, ranks = network_between_nodes()
    found = judge_job(facts, ranks)
    assert (found.ranks.culprit, found.ranks.waiting) == ((), (0, 1))
    assert not found.guessed
    assert found.cause is not None
    assert (found.cause.id, found.cause.level) == ("network-between-nodes", "seen")
    assert "rank 0 on n1" in found.cause.why
    assert "rank 1 on n2" in found.cause.why


def test_in_a_ring_over_a_network_that_is_cut_nobody_is_to_blame() -> None:
    """Each has sent, and waits for what the other has sent."""
    one = connected(FIRST_END, OTHER_END, "n2", 101, resent=4)
    other = connected(OTHER_END, FIRST_END, "n1", 100, resent=4)
    first = look("turn ring.py:9", call="recvfrom", descriptors=on(one), sockets=(one,))
    second = look("turn ring.py:9", call="recvfrom", descriptors=on(other), sockets=(other,))
    ranks = [rank(0, first, first, host="n1"), rank(1, second, second, host="n2")]
    found = judge_job(job(), ranks)
    assert found.ranks.culprit == ()
    assert found.cause is not None
    assert found.cause.id == "network-between-nodes"


def test_who_stands_still_by_itself_is_to_blame_whatever_the_network_does() -> None:
    facts, ranks = network_between_nodes()
    back = connected(OTHER_END, FIRST_END, "n1", 100)
    asleep = replace(SLEEP, sockets=(back,))
    found = judge_job(facts, [ranks[0], rank(1, asleep, asleep, host="n2")])
    assert found.ranks.culprit == (1,)
    assert found.cause is None or found.cause.id != "network-between-nodes"


@pytest.mark.parametrize("resent", [0, 1, 2])
def test_a_packet_that_is_sent_again_is_no_cause(resent: int) -> None:
    sends = replace(ALL_REDUCE, sockets=(connected(FIRST_END, OTHER_END, "n2", 101, resent),))
    hears = replace(ALL_REDUCE, sockets=(connected(OTHER_END, FIRST_END, "n1", 100),))
    ranks = [rank(0, sends, sends, host="n1"), rank(1, hears, hears, host="n2")]
    assert "network-between-nodes" not in causes_of((job(), ranks))


def test_a_connection_to_a_stranger_is_not_the_network_between_nodes() -> None:
    sends = replace(ALL_REDUCE, sockets=(tcp("151.101.1.1:443", resent=6),))
    ranks = [rank(0, sends, sends, host="n1"), rank(1, ALL_REDUCE, ALL_REDUCE, host="n2")]
    assert "network-between-nodes" not in causes_of((job(), ranks))


def asked_for(resent: int) -> Facts:
    """Rank 1 on n2 opens a connection to where rank 0 on n1 listens."""
    asks = Socket(72, "tcp", OTHER_END, FIRST_END, "SYN_SENT", resent=resent)
    asks = replace(asks, remote=ProcessId("n1", 100))
    one, other = look(*MAKES_GROUP), look(*MAKES_GROUP, sockets=(asks,))
    return job(), [rank(0, one, one, host="n1"), rank(1, other, other, host="n2")]


def test_a_connection_between_two_ranks_that_nobody_answers_is_the_network_between_them() -> None:
    found = judge_job(*asked_for(4))
    assert found.ranks.culprit == ()
    assert found.cause is not None
    assert found.cause.id == "network-between-nodes"
    assert "asked for 4 times more" in found.cause.why
    assert FIRST_END in found.cause.why
    assert "network-between-nodes" not in causes_of(asked_for(2))


REFUSED = (
    "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] timed out "
    "connecting: SO_ERROR: Connection refused, remote=[%s]:45489$0"
)


def test_gloo_that_is_refused_at_the_address_of_a_peer_cannot_reach_it() -> None:
    told = {0: "", 1: "lxcbr0", 2: ""}
    ranks = [
        gone(0, 1, REFUSED % "10.0.3.1", left_at=90.0),
        rank(1, look(*MAKES_GROUP)),
        gone(2, 1, REFUSED % "10.0.3.1", left_at=90.0),
    ]
    ranks = [
        replace(one, environment={**TORCHRUN, **({"GLOO_SOCKET_IFNAME": v} if v else {})})
        for one, v in zip(ranks, told.values(), strict=True)
    ]
    found = causes_of((job("crash", world=3), ranks))["peer-unreachable"]
    assert "10.0.3.1" in found.why
    assert "GLOO_SOCKET_IFNAME is not set on ranks 0,2 and lxcbr0 on rank 1" in found.matched
    loopback = [replace(ranks[0], error=REFUSED % "127.0.1.1"), *ranks[1:2]]
    assert "peer-unreachable" not in causes_of((job("crash"), loopback))


def test_who_is_connected_to_a_server_of_one_connection_is_named_with_its_port() -> None:
    found = causes_of(connections_not_taken())["connections-not-taken"]
    assert found.why.startswith("Ranks 1,3 wait at port 9020 of rank 2")
    assert judge_job(*connections_not_taken()).ranks.culprit == (2,)


def test_who_waits_at_such_a_server_may_be_on_other_hosts() -> None:
    """As the nodes are joined: nobody there has the other end, but a process listens there."""
    facts, (*ranks,) = connections_not_taken()
    for number in (1, 3):
        one = replace(_sent_by(number), peer_pids=(), remote=ProcessId("n2", 102))
        sends = look("send log.py:6", call="sendto", descriptors=on(one))
        ranks[number] = rank(number, sends, sends, host=f"n{number + 4}")
    ranks[0], ranks[2] = replace(ranks[0], host="n4"), replace(ranks[2], host="n2")
    found = causes_of((facts, ranks))["connections-not-taken"]
    assert found.why.startswith("Ranks 1,3 wait at port 9020 of rank 2")
    assert judge_job(facts, ranks).ranks.culprit == (2,)


def test_of_two_that_wait_for_each_other_who_has_not_accepted_the_connection_is_to_blame() -> None:
    facts, (*ranks,) = connections_not_taken()
    ranks[3] = replace(ranks[0], rank=3)  # rank 1 alone waits at the server
    found = judge_job(facts, ranks)
    assert found.cause is not None
    assert (found.ranks.culprit, found.cause.id) == ((2,), "connections-not-taken")


def test_connections_that_a_server_has_taken_are_others() -> None:
    taken = [replace(one, local=one.peer, peer=one.local) for one in map(_sent_by, (1, 3))]
    assert "connections-not-taken" not in causes_of(connections_not_taken(*taken))
