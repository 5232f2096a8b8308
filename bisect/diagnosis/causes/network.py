"""The network between the ranks: addresses, names, interfaces, proxies."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...base.addresses import host_of, is_loopback, is_talking, parse_gloo, parse_nccl, port_of
from ...base.identity import ProcessId, RankId
from ...base.library_functions import is_library_file
from ...base.process_facts import Frame, Socket
from ...base.words import begin_sentence, format_ranks
from ..process.blocked_syscalls import READ_CALLS
from ..process.frames import format_frame
from ..rank_connections import find_cut_connection, is_untaken
from ..rendezvous_claims import tries_again
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .signs import (
    ended_with,
    find_blocked_processes,
    format_process,
    makes_a_group,
    meets_its_peers,
    native_name,
    through_a_proxy,
)

# Python's wrappers; getaddrinfo and its like are C, and the resolver below them is libc's.
_LOOKUPS_PYTHON = r"getaddrinfo|getfqdn|gethostbyname(?:_ex)?|getnameinfo"
_LOOKUPS_NATIVE = re.compile(
    r"\b(?:getaddrinfo|getnameinfo|gethostbyname\w*|gethostbyaddr\w*"
    r"|_*(?:res|GI___res)_\w*(?:send|query|search)\w*|_nss_dns_\w+|send_dg|send_vc)\b"
)
_DNS = "53"
# As the kernel shortens their names: systemd-resolved, unscd, sssd's responder for nss.
_RESOLVERS = ("systemd-resolve", "nscd", "unscd", "sssd_nss")


def _opening(scene: Scene) -> tuple[Socket, ...]:
    """Return the connections that the subject is still opening."""
    sockets = scene.view.look.sockets if scene.view else ()
    return tuple(s for s in sockets if s.state == "SYN_SENT" and is_talking(s))


def _is_master(scene: Scene, socket: Socket) -> bool:
    port = scene.environment.get("MASTER_PORT", "")
    return port_of(socket.peer) == port or host_of(socket.peer) == scene.environment.get(
        "MASTER_ADDR", ""
    )


# ---- signs ---------------------------------------------------------------------------------------


def no_answer_from_the_master(scene: Scene) -> Found | None:
    """A connection to MASTER_ADDR is asked for and not answered (SYN_SENT)."""
    for socket in _opening(scene):
        if _is_master(scene, socket):
            name = scene.environment.get("MASTER_ADDR", "")
            return Found(
                f"{socket.peer} SYN_SENT, MASTER_ADDR={name}",
                {"peer": socket.peer, "address": name or host_of(socket.peer)},
            )
    return None


def _no_answer_from_a_peer(scene: Scene) -> Found | None:
    """A connection to another host than the master's is asked for and not answered (SYN_SENT)."""
    for socket in _opening(scene):
        if not _is_master(scene, socket) and not is_loopback(host_of(socket.peer)):
            return Found(f"{socket.peer} SYN_SENT", {"peer": socket.peer})
    return None


_mesh_not_reached = ended_with(
    r"connectFullMesh failed.{0,400}?(?:refused|timed out|No route|unreachable).{0,80}?"
    r"remote=\[(?P<peer>(?!127\.)[\da-fA-F.:]+)\]",
    "gloo could not connect to the address that another rank has told",
)


def _no_way_to_a_peer(scene: Scene) -> Found | None:
    """A connection to another rank's address is not answered, or gloo ended because it could not be
    made.
    """
    return _no_answer_from_a_peer(scene) or _mesh_not_reached(scene)


def _met_its_peers(scene: Scene) -> Found | None:
    """It waits for its peers, or ended as it was to meet them."""
    return meets_its_peers(scene) or _mesh_not_reached(scene)


def _interfaces_differ(scene: Scene) -> Found | None:
    """A variable names another interface on some ranks than on the others."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        ranks: dict[str, list[RankId]] = {}
        for facts in scene.ranks:
            ranks.setdefault(facts.environment.get(name, ""), []).append(facts.rank)
        if len(ranks) > 1 and any(facts.environment for facts in scene.ranks):
            told = (f"{v or 'not set'} on {format_ranks(those)}" for v, those in ranks.items())
            return Found(f"{name} is {' and '.join(told)}")
    return None


def _no_store_there(scene: Scene) -> Found | None:
    """It has neither a connection to MASTER_PORT nor listens there."""
    port = scene.environment.get("MASTER_PORT", "")
    sockets = scene.view.look.sockets if scene.view else ()
    if not port or scene.environment.get("RANK") == "0":
        return None
    if any(port in (port_of(s.peer), port_of(s.local)) for s in sockets):
        return None
    address = scene.environment.get("MASTER_ADDR", "?")
    return Found(f"no connection to {address}:{port}", {"store": f"{address}:{port}"})


def _nothing_gets_through(scene: Scene) -> Found | None:
    """What a rank has sent to one of another node is sent again, and not acknowledged."""
    blamed, cut = scene.verdict.ranks.culprit, find_cut_connection(scene.ranks)
    if cut is None or (blamed and not (cut.is_of_one_port and blamed == (cut.sender.rank,))):
        return None
    ends = f"{cut.sender.host} and {cut.receiver.host}"
    return Found(
        str(cut),
        {"begin": begin_sentence(str(cut)), "ends": ends, "peer": host_of(cut.socket.peer)},
    )


def _makes_a_store_client(scene: Scene) -> Found | None:
    """It is in _create_c10d_store, between two tries to connect."""
    frame = scene.frame(r"torch/distributed/rendezvous\.py", "_create_c10d_store|_tcp_\\w+")
    subject, port = scene.subject, scene.environment.get("MASTER_PORT", "")
    if frame is None or subject is None or not tries_again(subject, scene.view, port):
        return None
    return Found(f"it sleeps in {format_frame(frame)} between two tries to connect")


def _names_no_interface(scene: Scene) -> Found | None:
    known = scene.machine.interfaces
    for facts in (scene.subject, *scene.culprits):
        environment = facts.environment if facts else {}
        gloo = environment.get("GLOO_SOCKET_IFNAME", "")
        nccl = environment.get("NCCL_SOCKET_IFNAME", "")
        if known and not set(parse_gloo(gloo)) <= set(known):
            return _wrong_interface("GLOO_SOCKET_IFNAME", gloo, known)
        # NCCL reads the value from two characters on.
        if known and len(nccl) > 1 and not any(map(parse_nccl(nccl).fits, known)):
            return _wrong_interface("NCCL_SOCKET_IFNAME", nccl, known)
    return None


def _wrong_interface(name: str, value: str, known: tuple[str, ...]) -> Found:
    here = ", ".join(sorted(known)[:8])
    return Found(f"{name}={value}; there are {here}", {"variable": name, "value": value})


_gloo_finds_no_address = ended_with(
    r"Unable to find address for:? ?(?P<value>[\w.:^=,-]*)"
    r"|(?:Bootstrap : )?no socket interface found",
    "It ended because an interface has no address",
)


def _no_such_interface(scene: Scene) -> Found | None:
    """GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names no interface that the machine has."""
    return _names_no_interface(scene) or _gloo_finds_no_address(scene)


def _interface_is_wanted(scene: Scene) -> Found | None:
    """It waits for its peers, or ended because an interface has no address."""
    return meets_its_peers(scene) or _gloo_finds_no_address(scene)


def _looks_up_a_name(scene: Scene) -> Found | None:
    """It looks up a host's name or address: frames of getaddrinfo and the like, or port 53."""
    frame = scene.inside(r"(?:^|/)socket\.py", _LOOKUPS_PYTHON)
    if frame is not None:
        return Found(f"frame {format_frame(frame)}")
    for native in scene.frames[:12]:
        if native.native and _LOOKUPS_NATIVE.search(native.name):
            return Found(f"native frame {native_name(native)}")
    return _a_thread_looks_up(scene) or _asks_a_name_server(scene)


def _a_thread_looks_up(scene: Scene) -> Found | None:
    """Return the look-up that an event loop had a thread make: asyncio asks a pool of threads."""
    if scene.group is not None or scene.inside(r"asyncio/\S+\.py|fsspec/asyn\.py") is None:
        return None
    for thread in scene.view.threads if scene.view else ():
        frame = find_frame(thread.frames[:4], r"(?:^|/)socket\.py", _LOOKUPS_PYTHON)
        if frame is not None:
            return Found(f"frame {format_frame(frame)} in thread {thread.name or thread.os_id}")
    return None


def _asks_a_name_server(scene: Scene) -> Found | None:
    """Its system call is about a socket to port 53, a name server's, or to the machine's resolver
    (systemd-resolved, nscd).
    """
    own = (scene.blocking,) if scene.blocking is not None else scene.blocking_threads
    for socket in own:
        if socket.family == "unix":
            if any(name in _RESOLVERS for name in socket.peer_names):
                return Found(f"it waits for {socket.peer_names[0]}", {"server": socket.peer})
        elif port_of(socket.peer) == _DNS:
            server = host_of(socket.peer)
            listed = ", of resolv.conf" if server in scene.machine.nameservers else ""
            return Found(f"it waits for the name server {server}{listed}", {"server": server})
    return None


def _talks_to_a_server(scene: Scene) -> Found | None:
    """It waits for a server outside of the job."""
    if scene.group is not None:
        return None
    for socket in scene.awaited:
        return Found(f"it waits for {socket.peer}, {socket.state}", {"peer": socket.peer})
    return None


def _spans_nodes(scene: Scene) -> Found | None:
    """The job has ranks on other nodes."""
    hosts = {facts.host for facts in scene.ranks}
    if len(hosts) > 1:
        return Found(f"the ranks are on {len(hosts)} hosts")
    here, world = len(scene.job.local_ranks), scene.job.world_size
    return Found(f"{here} of {world} ranks are on this node") if world > here else None


_meshed_with_itself = ended_with(
    r"connectFullMesh.{0,300}?127\.\d+\.\d+\.\d+|Unable to resolve hostname to a \(local\) address",
    "Gloo could not connect the ranks over an address of the machine itself",
)
_name_not_known = ended_with(
    r"(?:gaierror|getaddrinfo|resolve|hostname)?[^\n]{0,80}?(?P<said>Name or service not known"
    r"|Temporary failure in name resolution|No address associated with hostname"
    r"|Name does not resolve)",
    "It ended because a name could not be resolved",
)


def _name_cannot_be_resolved(scene: Scene) -> Found | None:
    """It ended because a name could not be resolved, or tries again and again to reach the store at
    one, and c10d says so.
    """
    if scene.verdict.outcome == "crash":
        return _name_not_known(scene)
    if scene.subject is None or _makes_a_store_client(scene) is None:
        return None
    name = scene.environment.get("MASTER_ADDR", "")
    said = scene.wrote(_NO_ADDRESS % re.escape(name), [scene.subject]) if name else None
    if said is None or _no_store_there(scene) is None:
        return None
    return Found(f"c10d says of {name}: {said[1]['said']}", {"said": f"{name}: {said[1]['said']}"})


# torch/csrc/distributed/c10d/socket.cpp, SocketConnectOp::tryConnect
_NO_ADDRESS = (
    r"network addresses of \(%s, \d+\) cannot be retrieved \(gai error: -?\d+ - (?P<said>[^)]+)\)"
)


def connections_are_not_taken(scene: Scene) -> Found | None:
    """Other ranks wait at connections to a port of the rank, which has not accepted them."""
    subject, view = scene.subject, scene.view
    if subject is None or view is None:
        return None
    here = {facts.rank for facts in scene.ranks if facts.host == subject.host}
    server = ProcessId(subject.host, subject.pid or 0)
    waiting = {
        rank: one.socket
        for rank, other in scene.views.items()
        if rank != subject.rank and other.call is not None
        for one in other.call.descriptors
        if one.socket is not None and is_untaken(one.socket, view.look)
        if one.socket.remote == server or (rank in here and subject.pid in one.socket.peer_pids)
    }
    if not waiting:
        return None
    port = port_of(next(iter(waiting.values())).peer)
    who = format_ranks(tuple(sorted(waiting)))
    words = f"{who} at port {port} of rank {subject.rank}, which has not accepted that"
    return Found(words, {"ranks": begin_sentence(who), "port": port, "rank": subject.rank})


def _serves_another_one(scene: Scene) -> Found | None:
    """A thread of the rank reads from a connection that it has accepted, or stands in what it was
    asked to do there.
    """
    view = scene.view
    for thread in view.threads if view is not None else ():
        if (asked := _find_answering(thread.frames)) is not None:
            place = format_frame(asked)
            values = {"busy": f"and it stands in {place} for the one that it has"}
            return Found(f"its thread answers in {place}, and takes no other one", values)
    ports = {port_of(s.local) for s in view.look.sockets if s.state == "LISTEN"} if view else set()
    for task in view.look.kernel if view is not None else ():
        call = task.syscall if view is not None and task.tid != view.look.pid else None
        if call is None or call.name not in READ_CALLS:
            continue
        for one in call.descriptors:
            if one.socket is not None and one.socket.peer and port_of(one.socket.local) in ports:
                words = f"a thread of it reads from {one.socket.peer}, and from nobody else"
                return Found(words, {"busy": "and that one stays open"})
    return None


def _find_answering(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the job's own code in which a server of the standard library
    answers a request, in the thread that takes them; None where it waits for one, or has a thread
    for each.
    """
    at = next((n for n, one in enumerate(frames) if one.name.endswith(_TAKES_ONE)), 0)
    return next((one for one in frames[:at] if not is_library_file(one.file)), None)


# socketserver.py: what serve_forever calls for each request; a handler is below it.
_TAKES_ONE = "BaseServer._handle_request_noblock"


def serves_one_connection(scene: Scene) -> Found | None:
    """Other ranks wait at connections that it has not accepted, as a thread serves another one."""
    return connections_are_not_taken(scene) if _serves_another_one(scene) is not None else None


def _waits_in_a_listening_queue(scene: Scene) -> Found | None:
    """It waits for an answer of a process beside it, or one that it has started, over a connection
    which that has not accepted.
    """
    call = scene.view.call if scene.view is not None else None
    sockets = [one.socket for one in call.descriptors if one.socket] if call is not None else []
    for server in find_blocked_processes(scene)[1:2]:
        for one in sockets:
            if server.look.pid in one.peer_pids and is_untaken(one, server.look):
                who, port = format_process(server.look), port_of(one.peer)
                words = f"{who} has not accepted its connection to port {port}"
                return Found(words, {"server": who, "port": port})
    return None


def _it_serves_a_client_that_stays(scene: Scene) -> Found | None:
    """That process has one thread of Python, which reads the next request of another client."""
    for server in find_blocked_processes(scene)[1:2]:
        call, look = server.call, server.look
        ports = {port_of(one.local) for one in look.sockets if one.state == "LISTEN"}
        named = call.descriptors if call is not None and call.name in READ_CALLS else ()
        for one in (d.socket for d in named if d.socket is not None and len(server.threads) == 1):
            if one.peer and port_of(one.local) in ports:
                client = next(iter(one.peer_names), "") or one.peer
                return Found(f"it reads from {client}, its only thread", {"client": client})
    return None


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="master-unroutable",
        title="nobody answers at MASTER_ADDR: the address leads nowhere, or a firewall is silent",
        signs=(need(no_answer_from_the_master, 0.8, proves=True), need(makes_a_group, 0.4)),
        why="Nothing answers the connection to {peer}, neither yes nor no: packets to {address} "
        "get lost, so the rank tries until its time-out.",
        avoid=(
            "MASTER_ADDR=<an address of node 0 that this machine reaches>; try: nc -vz {address} "
            "$MASTER_PORT",
            "open MASTER_PORT in the firewall",
        ),
        references=("NVIDIA/nccl#913", "pytorch/pytorch#150532"),
    ),
    KnownCause(
        id="connections-not-taken",
        title="a rank serves one connection, and others wait at those that it has not accepted",
        signs=(need(connections_are_not_taken, 0.5), need(_serves_another_one, 0.4)),
        why="{ranks} wait at port {port} of rank {rank}, whose server answers one connection at a "
        "time, {busy}.",
        avoid=(
            "a thread for each connection: socketserver.ThreadingMixIn, or a task of asyncio",
            "close a connection after each message, or give sends a time limit",
        ),
        references=("https://docs.python.org/3/library/socketserver.html",),
    ),
    KnownCause(
        id="server-of-one-client",
        title="a server of one thread waits for its client's next request, and takes no other one",
        signs=(
            need(_waits_in_a_listening_queue, 0.6),
            need(_it_serves_a_client_that_stays, 0.6),
        ),
        why="{server} answers one connection at a time: it waits for the next request of {client}, "
        "which keeps its own open, and has not accepted the one to port {port}.",
        avoid=(
            "ThreadingHTTPServer in place of HTTPServer (socketserver.ThreadingMixIn), or asyncio",
            'HTTP/1.0, or "Connection: close": no connection stays open between two requests',
        ),
        references=("https://docs.python.org/3/library/http.server.html",),
    ),
    KnownCause(
        id="nobody-serves-the-store",
        title="nothing listens at MASTER_ADDR:MASTER_PORT",
        signs=(need(_makes_a_store_client, 0.4), need(_no_store_there, 0.5)),
        why="The rank tries again and again to reach the store at {store}, and there is none: rank "
        "0, which serves it, is elsewhere or is not there.",
        avoid=("look at rank 0: did it start, and has it the same MASTER_ADDR and MASTER_PORT?",),
        references=("pytorch/pytorch#49846", "pytorch/pytorch#67547"),
    ),
    KnownCause(
        id="no-such-interface",
        title="a variable names a network interface that this machine has not",
        signs=(
            need(_no_such_interface, 0.65),
            need(_interface_is_wanted, 0.3),
            also(_gloo_finds_no_address, 0.85, proves=True),
        ),
        why="{variable}={value} fits no interface here.",
        avoid=(
            "name one that `ip -br address` lists, on every node: gloo takes names, separated by "
            "commas; only NCCL takes prefixes, ^ (all but these) and = (exactly these)",
            "unset {variable}",
        ),
        references=("aws-samples/aws-do-eks#51", "vllm-project/vllm#7074"),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="name-server-silent",
        title="a host's name is looked up, and the name server does not answer",
        signs=(need(_looks_up_a_name, 0.65), also(_asks_a_name_server, 0.6, proves=True)),
        why="The look-up waits for its name server; with the usual settings it gives up after "
        "seconds to minutes, once for each name. torch also looks addresses up backwards, only to "
        "log them.",
        avoid=(
            "put the names of all nodes into /etc/hosts",
            "take name servers that do not answer out of /etc/resolv.conf, or set `options "
            "timeout:1 attempts:1`",
        ),
        references=("pytorch/pytorch#159007", "pytorch/pytorch#150532", "pytorch/pytorch#80772"),
    ),
    KnownCause(
        id="name-unknown",
        title="a host's name cannot be resolved",
        signs=(need(_name_cannot_be_resolved, 0.85, proves=True),),
        why='The look-up of a name failed: "{said}".',
        avoid=(
            "an address, or a name that `getent hosts NAME` knows on every node",
            "in Kubernetes, wait until rank 0's name is known (nslookup in an init container)",
        ),
        references=("pytorch/pytorch#67547", "pytorch/pytorch#80772", "meta-pytorch/torchx#541"),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="proxy-silent",
        title="the connection goes through a proxy, and nothing comes back",
        signs=(need(through_a_proxy, 0.65), need(_talks_to_a_server, 0.4)),
        why="What is waited for is not the server itself but the proxy at {peer}, which {variable} "
        "names: it does not answer, or waits for the server in vain.",
        avoid=(
            "NO_PROXY with the names and addresses that are reached directly: `localhost` alone "
            "does not cover the addresses of the nodes",
            "unset {variable} where there is a direct way",
        ),
        references=("ray-project/ray#37757", "ray-project/ray#6744", "ray-project/ray#23526"),
    ),
    KnownCause(
        id="network-between-nodes",
        title="nothing gets through between two nodes",
        signs=(need(_nothing_gets_through, 0.9, proves=True),),
        why="{begin}. Both processes are there, so {ends} do not reach each other over this "
        "network: a link or a switch is down, a route is gone, or a firewall has closed what was "
        "open.",
        avoid=(
            "from the one node: ping {peer}; ip route get {peer}; ip -s link: is it the interface "
            "that was meant (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)?",
            "leave one of both nodes out of the next start (srun --exclude, a cordon)",
        ),
        references=("pytorch/pytorch#111646", "NVIDIA/nccl#913"),
    ),
    KnownCause(
        id="peer-unreachable",
        title="a rank opens a connection to another rank, and nothing comes back",
        signs=(
            need(_no_way_to_a_peer, 0.65, proves=True),
            need(_met_its_peers, 0.4),
            also(_interfaces_differ, 0.3),
            unless(through_a_proxy),
        ),
        why="Nothing answers at {peer}: the other rank told an address that cannot be reached from "
        "here (docker0, veth, a second network), or a firewall is silent.",
        avoid=(
            "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME: the interface over which the nodes reach "
            "each other, on all nodes",
            "open all ports between the nodes: the ranks choose theirs freely",
        ),
        references=("NVIDIA/nccl#913", "NVIDIA/nccl#367", "horovod/horovod#584"),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="hostname-is-loopback",
        title="the machine's own name means 127.x, and the other nodes are told that address",
        signs=(need(_meshed_with_itself, 0.6), need(_spans_nodes, 0.45)),
        why="gloo tells the others the address of the machine's own name. /etc/hosts says that it "
        "is the machine itself, so each node connects to itself.",
        avoid=(
            "GLOO_SOCKET_IFNAME=<the interface to the other nodes>",
            "in /etc/hosts, the machine's name at its real address",
        ),
        references=("aws-samples/aws-do-eks#50", "vllm-project/vllm#7074"),
        outcomes=("crash", "hang"),
    ),
)
