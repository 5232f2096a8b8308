"""What one node shows of the others: which nodes are at the rendezvous of torchrun's agents, and
how far the clocks of nodes are apart. Pure.

Before an agent starts a rank it meets those of the other nodes at a store that one node serves
(torch/distributed/elastic/agent/server/api.py, SimpleElasticAgent._rendezvous). Whoever has come
has a connection to it, which the kernel shows on the node that serves; any other node sees only
whether the store answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..base.addresses import host_of, is_loopback, port_of
from ..base.command_words import count_nodes, find_meeting_place, given, own_words
from ..base.lazy_dataclass import dataclass
from ..base.library_functions import Role, find_role
from ..base.process_facts import Look, Socket
from ..base.rank_facts import ClockOffset
from ..base.verdict_facts import Wait
from ..base.words import format_count, format_ranges, format_seconds
from .process.process_snapshot import ProcessSnapshot, merge_looks

_MOST_NAMED = 8  # nodes that are named


@dataclass(frozen=True)
class NodeRendezvous:
    """What one agent sees of the meeting of all."""

    place: str  # host:port of the store
    size: int  # how many nodes are to come at the least, 0 where that is not known
    others: tuple[str, ...] | None  # the addresses that have come; None: served elsewhere
    answers: bool

    def __str__(self) -> str:
        """Return it as what the agent waits for."""
        if self.others is not None:
            return self._list_those_who_came(self.others)
        nodes = format_count(self.size, "node") if self.size else "all nodes"
        if self.answers:
            return f"{nodes} meet at the rendezvous {self.place}, and not all have come: ask there"
        return f"the rendezvous {self.place} of {nodes}, which does not answer"

    def _list_those_who_came(self, others: tuple[str, ...]) -> str:
        here = 1 + len(others)
        every = f" of {format_count(self.size, 'node')}" if self.size else ""
        many = f"{here}{every}" if every else format_count(here, "node")
        named = ", ".join(["this one", *others[:_MOST_NAMED]])
        more = f", {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        is_there = "is" if here == 1 else "are"
        return f"{many} {is_there} at the rendezvous {self.place}: {named}{more}"


def find_node_wait(view: ProcessSnapshot) -> Wait | None:
    """Return the wait of an agent for the other nodes, None for any other process."""
    meeting = find_node_rendezvous(view)
    return Wait("store", str(meeting), what=meeting.place) if meeting is not None else None


def find_node_rendezvous(view: ProcessSnapshot) -> NodeRendezvous | None:
    """Return what an agent that meets the others sees of it, None for any other process."""
    if find_role(view.frames, Role.MEETS_NODES) is None or _asks_a_name_server(view):
        return None
    return _read_meeting(view.look)


def _read_meeting(look: Look) -> NodeRendezvous:
    """Return what an agent sees of the meeting by its connections."""
    place = find_meeting_place(look.command)
    port = port_of(place) or _find_served_port(look)
    ends = [one for one in look.sockets if one.state == "ESTABLISHED"]
    serves = any(one.state == "LISTEN" and port_of(one.local) == port for one in look.sockets)
    mine = {one.local for one in ends if port_of(one.peer) == port}
    served = [one for one in ends if port_of(one.local) == port and one.peer not in mine]
    if not place:
        place = next((one.peer for one in ends if port_of(one.peer) == port), f"port {port or '?'}")
    others = tuple(sorted({_name_end(one): host_of(one.peer) for one in served}.values()))
    size = count_nodes(look.command)
    return NodeRendezvous(place, size, others if serves else None, serves or bool(mine))


_AGENT = re.compile(r"torch/distributed/elastic/agent/server/api\.py$")


def is_past_its_ranks(looks: Sequence[Look]) -> bool:
    """Return whether an agent waits until those of other nodes have come to the end too: its own
    ranks have ended well (SimpleElasticAgent._exit_barrier).
    """
    view = merge_looks(looks)
    frames = view.frames if view is not None else ()
    return any(_AGENT.search(f.file) and f.name.endswith("_exit_barrier") for f in frames)


def list_agents_lost_at_end(looks: Sequence[Look], hosts: Mapping[str, str]) -> list[str]:
    """Return in words whose agents have no connection any more to the one that serves where all
    meet, which is past its ranks: each keeps its own as long as it lives. `hosts`: by name the
    addresses of those that had come; () of any other process, and where as many are there as are to
    be.
    """
    view = merge_looks(looks)
    if view is None or not is_past_its_ranks(looks):
        return []
    meeting = _read_meeting(view.look)
    if meeting.others is None or not 1 + len(meeting.others) < meeting.size:
        return []
    there = {one.removeprefix(_MAPPED) for one in meeting.others}
    come = {name: address.removeprefix(_MAPPED) for name, address in sorted(hosts.items())}
    lost = [name for name, address in come.items() if address not in there]
    return [f"{AGENT_LOST}{', '.join(lost[:_MOST_NAMED]) or 'a node'}: {meeting}"]


# Before the names of hosts whose agents have ended, or were cut off, while others wait for them.
AGENT_LOST = "no agent is connected any more from "
_DNS = "53"
_MAPPED = "::ffff:"  # before an address of IPv4 at a socket of IPv6


def _asks_a_name_server(view: ProcessSnapshot) -> bool:
    """Return whether the call is about a question to a name server: it meets nobody yet."""
    named = [one.socket for one in (view.call.descriptors if view.call is not None else ())]
    return any(one is not None and port_of(one.peer) == _DNS for one in named)


def compare_agents(agents: Mapping[str, Sequence[Look]]) -> tuple[str, list[str]]:
    """Return the host whose agent tells most, and in words what agents do not agree about, and who
    is not among them. Of agents, by host, of which all wait for one another it is the one that
    serves the rendezvous: it has a connection to each that came. One that stands still elsewhere
    comes before those.
    """
    waiting = {}
    for host, looks in agents.items():
        view = merge_looks(looks)
        meeting = find_node_rendezvous(view) if view is not None else None
        if meeting is not None:
            waiting[host] = meeting
    elsewhere = next((host for host in agents if host not in waiting), None)
    serving = next((host for host, one in waiting.items() if one.others is not None), None)
    commands = {host: agents[host][-1].command for host in waiting}
    own = _describe_own_places(waiting)
    notes = [*own, *list_disagreements(commands), *_list_absent_nodes(commands)]
    return elsewhere or serving or next(iter(agents)), notes


def _describe_own_places(meetings: Mapping[str, NodeRendezvous]) -> list[str]:
    """Return in words which hosts' agents each serve the others at a name of the machine itself."""
    hosts = [h for h, one in meetings.items() if one.others is not None and _is_own(one)]
    if len(hosts) < 2:
        return []
    place = meetings[hosts[0]].place
    return [
        f"{place} is each machine itself: {', '.join(hosts[:_MOST_NAMED])} each wait there for the "
        "others"
    ]


def _is_own(meeting: NodeRendezvous) -> bool:
    return is_loopback(host_of(meeting.place))


def cannot_meet(agents: Mapping[str, Sequence[Look]]) -> bool:
    """Return whether agents, by host, differ in what no node that may still come can mend. On which
    machine they say that they meet does not tell: a name and an address may be the same one. Its
    port does, where one machine serves.
    """
    commands = {host: looks[-1].command for host, looks in agents.items() if looks}
    others = [one for one in _IN_COMMON if one != _ENDPOINT]
    places = [find_meeting_place(one) for one in commands.values() if _is_served_once(one)]
    ports = {port_of(place) for place in places if place}
    views = (merge_looks(looks) for looks in agents.values())
    meetings = (find_node_rendezvous(view) for view in views if view is not None)
    own = [
        one.size for one in meetings if one is not None and one.others is not None and _is_own(one)
    ]
    if len(own) > 1 and len(agents) >= max(own):
        return True  # all are there, each on its own machine
    return len(ports) > 1 or bool(list_disagreements(commands, others))


def meets_elsewhere(looks: Sequence[Look], own: Sequence[Look]) -> bool:
    """Return whether an agent meets others at another port than that of `own`, and somebody answers
    there: then it is of another job. One that nobody answers may have the wrong port.
    """
    views = [merge_looks(one) for one in (looks, own)]
    meeting, ours = (find_node_rendezvous(one) if one is not None else None for one in views)
    if meeting is None or ours is None or not meeting.answers:
        return False
    return port_of(meeting.place) != port_of(ours.place)


def _is_served_once(command: Sequence[str]) -> bool:
    """Return whether agents meet at one store: etcd may be reached at several places."""
    return not (given(command[: own_words(command)], "--rdzv-backend") or "").startswith("etcd")


# torch/distributed/run.py: what agents that are to meet have in common, and the number of each.
_ENDPOINT = "--rdzv-endpoint"
_IN_COMMON = ("--nnodes", "--rdzv-id", "--rdzv-backend", _ENDPOINT, "--master-port")
_OWN = "--node-rank"


def list_disagreements(
    commands: Mapping[str, Sequence[str]], flags: Sequence[str] = _IN_COMMON
) -> list[str]:
    """Return in words what agents of several nodes, by host, have not in common of what they need
    to meet, and which number two of them have.
    """
    words = {host: command[: own_words(command)] for host, command in commands.items()}
    found = []
    for flag in flags:
        values = {host: given(one, flag) or "not given" for host, one in words.items()}
        first = next(iter(values.items()), None)
        other = next((one for one in values.items() if first and one[1] != first[1]), None)
        if first is not None and other is not None:
            differ = f"{flag} is {first[1]} on {first[0]} and {other[1]} on {other[0]}"
            found.append(f"{differ}: the nodes do not meet, or count one another wrong")
    hosts: dict[str, str] = {}
    for host, one in words.items():
        number = given(one, _OWN)
        if number is not None and hosts.setdefault(number, host) != host:
            twice = f"{_OWN} is {number} on {hosts[number]} and on {host}"
            found.append(f"{twice}: each node needs its own")
    return found


def _list_absent_nodes(commands: Mapping[str, Sequence[str]]) -> list[str]:
    """Return in words the numbers of nodes that no agent has, where each has one of its own."""
    sizes = {count_nodes(command) for command in commands.values()}
    words = [given(command[: own_words(command)], _OWN) or "" for command in commands.values()]
    numbers = {int(one) for one in words if one.isdecimal()}
    size = next(iter(sizes)) if len(sizes) == 1 else 0
    absent = [number for number in range(size) if number not in numbers]
    if len(numbers) < len(words) or not absent or len(absent) + len(numbers) > size:
        return []
    return [f"none of the {len(words)} nodes that are seen has {_OWN} {format_ranges(absent)}"]


def _name_end(socket: Socket) -> tuple[str, tuple[int, ...]]:
    """Return what tells agents apart: the host, and on this machine the process."""
    return host_of(socket.peer), tuple(socket.peer_pids)


def _find_served_port(look: Look) -> str:
    """Return the port at which this process serves itself, as an agent with its own store does."""
    listening = {port_of(one.local) for one in look.sockets if one.state == "LISTEN"}
    asked = [port_of(one.peer) for one in look.sockets if one.state == "ESTABLISHED"]
    return next((port for port in asked if port in listening), "")


FAR = 2.0  # seconds: what synchronises clocks keeps them within a few milliseconds (chrony, ntpd)


def describe_clocks_apart(clocks: Sequence[ClockOffset]) -> str:
    """Return in words which two clocks are farthest apart, "" where that is less than FAR, or less
    than what is known of them.
    """
    if len(clocks) < 2:
        return ""
    first = min(clocks, key=lambda one: one.ahead)
    last = max(clocks, key=lambda one: one.ahead)
    apart = last.ahead - first.ahead
    if apart - first.error - last.error <= FAR:
        return ""
    return f"the clock of {first.host} is {format_seconds(apart)} behind that of {last.host}"


def describe_absent_hosts(hosts: Sequence[str]) -> str:
    """Return in words which of Slurm's hosts have not come, "" for none."""
    if not hosts:
        return ""
    more = f" and {len(hosts) - _MOST_NAMED} more" if len(hosts) > _MOST_NAMED else ""
    have = "has" if len(hosts) == 1 else "have"
    return f"of Slurm's nodes {', '.join(hosts[:_MOST_NAMED])}{more} {have} not come"
