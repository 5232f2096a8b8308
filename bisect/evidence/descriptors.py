"""What an open descriptor is, and who has its other end, by the name that the process goes by; and
the sockets of this machine: addresses, states, queues.

Descriptors are read from /proc, never from the target: asking the file itself (stat) may block
for ever on a frozen disk; its link in /proc does not.

Sockets are asked of the kernel by sock_diag (man 7 sock_diag), which alone counts the payload
(TCP_INFO) and names the other end of a Unix socket. It sees our own network namespace; a process
in another one is read from its /proc/PID/net, without counts.

Not pyroute2, the one library for this: importing it takes 130 ms and 5 MiB, it runs an event loop
of its own and so refuses to work inside ours (0.9.7), and it leaves TCP_INFO undecoded.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Literal, NamedTuple

from ..base.addresses import port_of
from ..base.proc import LARGEST, list_pids, read_stat
from ..base.process_facts import Descriptor, PipeEnd, Socket
from ..base.process_roles import LONGEST_NAME, SERVER_NAMES, name_server_process


def name_of(pid: int) -> str:
    """Return the name of a process, "" if it is gone. That of a server's, and a long one, reads its
    command line, unless that may block.
    """
    about = read_stat(pid)
    if about is None or about.state in "DZX":
        return about.comm if about is not None else ""
    if len(about.comm) < LONGEST_NAME and not about.comm.startswith(SERVER_NAMES):
        return about.comm
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            title = os.fsdecode(file.read(LARGEST).partition(b"\0")[0])
    except OSError:
        return about.comm
    return name_server_process([title], about.comm)


_STATES = (
    "", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE",
    "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV",
)  # fmt: skip
_MOST_LINES = 200_000  # of a table in /proc
_SOCK_DIAG = 4  # netlink protocol
_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_ALL_STATES = 0xFFF
_INET_INFO = 2  # attribute
_UNIX_NAME, _UNIX_PEER, _UNIX_QUEUED = 0, 2, 3  # attributes
_SHOW_NAME_PEER_AND_QUEUED = 13
_ACKED_AT, _RECEIVED_AT = 120, 128  # in struct tcp_info (Linux 4.1 and later)
# Of the timers of a TCP socket (Linux, Documentation/networking/proc_net_tcp). Probed is a
# window of zero, whose answers set the count back, and a peer to whom this machine has no way.
_RETRANSMITS, _PROBES = 1, 4
_HEARD_AT = 52  # tcpi_last_data_recv, milliseconds

# Said in a look that had no time for them.
ENDS_UNKNOWN = "Other ends of pipes and sockets outside the job were not looked for."


def parse_socket_inode(link: str) -> int | None:
    """Return the inode in "socket:[N]", None for another link."""
    number = link[8:-1] if link.startswith("socket:[") else ""
    return int(number) if number.isdecimal() else None


def read_sockets(
    missing: list[str] | None = None, left: list[Socket] | None = None
) -> dict[int, Socket]:
    """Return the sockets of our network namespace by inode; what could not be had in `missing`,
    TCP's ends that no process has any more in `left`.
    """
    found: dict[int, Socket] = {}
    for name, family, protocol in (
        ("tcp", socket.AF_INET, socket.IPPROTO_TCP),
        ("tcp6", socket.AF_INET6, socket.IPPROTO_TCP),
        ("udp", socket.AF_INET, socket.IPPROTO_UDP),
        ("udp6", socket.AF_INET6, socket.IPPROTO_UDP),
    ):
        try:
            asked = 1 << (_INET_INFO - 1)
            request = struct.pack("=BBBxI48x", family, protocol, asked, _ALL_STATES)
            for body in _ask_sock_diag(request):
                one = parse_inet_diag(body, name)
                if one is not None and one.inode:
                    found[one.inode] = one
                elif one is not None and left is not None:
                    left.append(one)
        except OSError:
            found.update(_read_proc_net("self", name))
            if missing is not None and name == "tcp":
                missing.append("Bytes over TCP were not counted (the kernel has no sock_diag).")
    try:
        states = 0xFFFFFFFF
        request = struct.pack("=BxxxII", socket.AF_UNIX, states, 0)
        request += struct.pack("=I8x", _SHOW_NAME_PEER_AND_QUEUED)
        answers = list(_ask_sock_diag(request))
        queued = {end: inode for body in answers for inode, end in parse_queued(body)}
        known = dict(filter(None, map(parse_unix_diag, answers)))
        found.update(
            _name_unix_peers(
                {inode: (one, peer or queued.get(inode, 0)) for inode, (one, peer) in known.items()}
            )
        )
    except OSError:
        if missing is not None:
            missing.append("The other ends of Unix sockets are not known (no unix_diag).")
    return found


def read_quiet_times() -> dict[int, float]:
    """Return for how many seconds nothing has come in over each TCP connection of our network
    namespace, by inode; of one over which nothing ever came, since it was made. Raises OSError.
    """
    found: dict[int, float] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        asked = 1 << (_INET_INFO - 1)
        wanted = 1 << _STATES.index("ESTABLISHED")
        request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, asked, wanted)
        for body in _ask_sock_diag(request):
            details = (
                parse_netlink_attributes(body[72:]).get(_INET_INFO, b"") if len(body) >= 72 else b""
            )
            if len(details) >= _HEARD_AT + 4:
                inode = struct.unpack_from("=I", body, 68)[0]
                found[inode] = struct.unpack_from("=I", details, _HEARD_AT)[0] / 1000
    return found


def read_network_namespace(pid: int) -> str:
    """Return the network namespace of a process ("net:[4026531840]"), "" if it is not known."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def select_listening(sockets: Mapping[int, Socket], port: int) -> dict[int, Socket]:
    """Return those that listen at a TCP port, by inode."""
    return {
        inode: one
        for inode, one in sockets.items()
        if one.state == "LISTEN"
        and one.family.startswith("tcp")
        and port_of(one.local) == str(port)
    }


def read_sockets_of_process(pid: int, missing: list[str]) -> dict[int, Socket] | None:
    """Return the sockets of a process's network namespace if it is not ours, else None."""
    theirs = read_network_namespace(pid)
    if not theirs or theirs == read_network_namespace(os.getpid()):
        return None
    missing.append(f"{pid} has a network of its own: bytes over TCP were not counted.")
    found: dict[int, Socket] = {}
    for name in ("tcp", "tcp6", "udp", "udp6"):
        found.update(_read_proc_net(str(pid), name))
    return found


def _ask_sock_diag(request: bytes) -> Iterator[bytes]:
    """Yield the bodies of the answers to a sock_diag request. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as netlink:
        netlink.settimeout(0.5)
        header = struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, _REQUEST_DUMP, 1, 0)
        netlink.send(header + request)
        while True:
            for kind, body in parse_netlink_messages(netlink.recv(1 << 18)):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    code = struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
                    raise OSError(-code, os.strerror(-code))
                yield body


def parse_netlink_messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, body) of the netlink messages in a datagram; stops at garbage."""
    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if length < 16:
            return
        yield kind, data[at + 16 : at + length]
        at += (length + 3) & ~3


def parse_netlink_attributes(data: bytes) -> dict[int, bytes]:
    """Return the attributes of a netlink message by number."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        found[kind] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


def parse_inet_diag(body: bytes, name: str) -> Socket | None:
    """Return the socket in an inet_diag_msg, None if it is cut off. Inode 0: no process has it."""
    if len(body) < 72:
        return None
    family, state = body[0], body[1]
    inode = struct.unpack_from("=I", body, 68)[0]
    sport, dport = struct.unpack_from("!HH", body, 4)
    size = 16 if family == socket.AF_INET6 else 4
    details = parse_netlink_attributes(body[72:]).get(_INET_INFO, b"")
    received = sent = None
    if name.startswith("tcp") and len(details) >= _RECEIVED_AT + 8:
        sent, received = struct.unpack_from("=QQ", details, _ACKED_AT)
    return Socket(
        inode=inode,
        family=name,
        local=_format_address(body[8 : 8 + size], sport),
        peer=_format_address(body[24 : 24 + size], dport) if dport else "",
        state=_STATES[state] if state < len(_STATES) else str(state),
        received=received,
        sent=sent,  # one too many on the side that connected: its handshake counts as a byte
        resent=body[3] if body[2] in (_RETRANSMITS, _PROBES) else 0,  # idiag_timer, idiag_retrans
        unread=struct.unpack_from("=I", body, 56)[0],  # idiag_rqueue
    )


def parse_unix_diag(body: bytes) -> tuple[int, tuple[Socket, int]] | None:
    """Return (inode, (socket, inode of the other end or 0)) from a unix_diag_msg."""
    if len(body) < 16:
        return None
    state, inode = body[2], struct.unpack_from("=I", body, 4)[0]
    found = parse_netlink_attributes(body[16:])
    raw = found.get(_UNIX_NAME, b"")
    name = "@" + os.fsdecode(raw[1:]) if raw[:1] == b"\0" else os.fsdecode(raw.rstrip(b"\0"))
    peer_raw = found.get(_UNIX_PEER, b"")
    peer = struct.unpack_from("=I", peer_raw)[0] if len(peer_raw) >= 4 else 0
    what = _STATES[state] if state < len(_STATES) else str(state)
    return inode, (Socket(inode=inode, family="unix", local=name, state=what), peer)


def parse_queued(body: bytes) -> list[tuple[int, int]]:
    """Return from a unix_diag_msg of one that listens its inode with that of each socket that has
    connected to it and was not accepted.
    """
    raw = parse_netlink_attributes(body[16:]).get(_UNIX_QUEUED, b"") if len(body) >= 16 else b""
    inode = struct.unpack_from("=I", body, 4)[0] if raw else 0
    ends = struct.unpack_from(f"={len(raw) // 4}I", raw)
    return [(inode, end) for end in ends if end]


def _name_unix_peers(found: dict[int, tuple[Socket, int]]) -> dict[int, Socket]:
    named: dict[int, Socket] = {}
    for inode, (one, peer) in found.items():
        path = found[peer][0].local if peer in found else ""
        named[inode] = replace(one, peer=path, peer_inode=peer or None)
    return named


def _format_address(raw: bytes, port: int) -> str:
    if len(raw) == 16:
        if raw[:12] == b"\0" * 10 + b"\xff\xff":
            return f"{socket.inet_ntop(socket.AF_INET, raw[12:])}:{port}"
        return f"[{socket.inet_ntop(socket.AF_INET6, raw)}]:{port}"
    return f"{socket.inet_ntop(socket.AF_INET, raw)}:{port}" if len(raw) == 4 else ""


def _read_proc_net(pid: str, name: str) -> dict[int, Socket]:
    try:
        with open(f"/proc/{pid}/net/{name}", errors="replace") as file:
            lines = islice(file, 1, _MOST_LINES)
            return {s.inode: s for line in lines if (s := parse_proc_net(line, name))}
    except OSError:
        return {}


def parse_proc_net(line: str, name: str) -> Socket | None:
    """Return the socket in a line of /proc/PID/net/tcp (tcp6, udp, udp6)."""
    fields = line.split()
    try:
        local, peer = (_parse_hex_address(fields[i]) for i in (1, 2))
        state, inode = int(fields[3], 16), int(fields[9])
    except (IndexError, ValueError):
        return None
    if not inode:
        return None
    what = _STATES[state] if state < len(_STATES) else str(state)
    resent = unread = 0
    if name.startswith("tcp"):
        with contextlib.suppress(ValueError):
            unread = int(fields[4].partition(":")[2], 16)
            counts = {_RETRANSMITS: int(fields[6], 16), _PROBES: int(fields[8])}
            resent = counts.get(int(fields[5].partition(":")[0], 16), 0)
    peer = "" if peer.endswith(":0") else peer
    return Socket(inode, name, local, peer, what, resent=resent, unread=unread)


def _parse_hex_address(text: str) -> str:
    address, _, port = text.partition(":")
    words = bytes.fromhex(address)
    # Each 32-bit word is printed in the machine's own byte order.
    raw = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    if sys.byteorder == "big":
        raw = words
    return _format_address(raw, int(port, 16))


DescriptorKind = Literal["file", "pipe", "fifo", "socket", "tty", "device", "anon", "unknown"]


class DescriptorHolder(NamedTuple):
    """A descriptor of some process."""

    pid: int
    fd: int
    reads: bool
    writes: bool


class DescriptorInfo(NamedTuple):
    """What /proc/PID/fdinfo/N says; None for what this kernel does not tell (inode: since 5.14)."""

    position: int | None = None
    mount: int | None = None
    inode: int | None = None
    locks: tuple[str, ...] = ()


def read_links(pid: int) -> dict[int, str]:
    """Return what each open descriptor of a process points to. Raises OSError if not permitted."""
    found: dict[int, str] = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # closed meanwhile
    return found


GPU_DEVICE = re.compile(r"/dev/(?:nvidia(\d+)|kfd)")


def list_gpus(links: Mapping[int, str]) -> tuple[str, ...]:
    """Return the device files of GPUs among what a process has open: none for one without a GPU."""
    return tuple(sorted({path for path in links.values() if GPU_DEVICE.fullmatch(path)}))


def classify_link(link: str, wchan: str = "", polled: bool = False) -> DescriptorKind:
    """Return what a link in /proc/PID/fd is.

    A FIFO looks like a file there. It is told by where its reader waits, and by being polled,
    which no file can be.
    """
    for start, kind in _KIND_BY_START:
        if link.startswith(start):
            return kind
    if not link.startswith("/"):
        return "unknown"
    if "pipe" in wchan or "fifo" in wchan or wchan == "wait_for_partner" or polled:
        return "fifo"
    return "file"


_KIND_BY_START: tuple[tuple[str, DescriptorKind], ...] = (
    ("socket:", "socket"),
    ("pipe:", "pipe"),
    ("anon_inode:", "anon"),
    ("/dev/pts/", "tty"),
    ("/dev/tty", "tty"),
    ("/dev/console", "tty"),
    ("/dev/shm/", "file"),
    ("/dev/hugepages/", "file"),
    ("/dev/mqueue/", "anon"),
    ("/dev/", "device"),
)


def read_descriptor_info(pid: int, fd: int) -> DescriptorInfo:
    """Return position, mount, inode and locks of an open descriptor."""
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}", errors="replace") as file:
            return parse_descriptor_info(file.read(LARGEST))
    except OSError:
        return DescriptorInfo()


def parse_descriptor_info(text: str) -> DescriptorInfo:
    """Return the fields of the text of a /proc/PID/fdinfo file."""
    numbers: dict[str, int] = {}
    locks: list[str] = []
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "lock":
            locks.append(value.strip())
        elif key in ("pos", "mnt_id", "ino") and value.strip().isdecimal():
            numbers[key] = int(value)
    return DescriptorInfo(
        numbers.get("pos"), numbers.get("mnt_id"), numbers.get("ino"), tuple(locks)
    )


def describe_descriptor(
    pid: int,
    fd: int,
    link: str | None,
    sockets: Mapping[int, Socket],
    *,
    wchan: str = "",
    polled: bool = False,
) -> Descriptor:
    """Return what descriptor `fd` of a process is; `link` is None if it is not open."""
    if link is None:
        return Descriptor(fd, "unknown", "")
    kind = classify_link(link, wchan, polled)
    inode = parse_socket_inode(link)
    return Descriptor(
        fd,
        kind,
        link,
        socket=sockets.get(inode) if inode is not None else None,
        position=read_descriptor_info(pid, fd).position if kind == "file" else None,
    )


def find_holders(wanted: Iterable[str]) -> dict[str, list[DescriptorHolder]]:
    """Return who has each of these links open, among the processes that we may read.

    One pass over all of /proc/*/fd: 10 ms for 100 processes. Call it with a limit.
    """
    looked_for = set(wanted)
    found: dict[str, list[DescriptorHolder]] = {link: [] for link in looked_for}
    if not looked_for:
        return found
    for pid in list_pids():
        try:
            open_here = read_links(pid)
        except OSError:
            continue
        for fd, link in open_here.items():
            if link in looked_for:
                found[link].append(_make_holder(pid, fd))
    return found


def _make_holder(pid: int, fd: int) -> DescriptorHolder:
    # The link's own mode says how the file was opened: r for reading, w for writing.
    try:
        mode = os.lstat(f"/proc/{pid}/fd/{fd}").st_mode
    except OSError:
        return DescriptorHolder(pid, fd, False, False)
    return DescriptorHolder(pid, fd, bool(mode & stat.S_IRUSR), bool(mode & stat.S_IWUSR))


def find_pipe_peers(pid: int, fd: int, ends: Iterable[DescriptorHolder]) -> tuple[int, ...]:
    """Return the pids that hold the other end of a pipe, the process itself last.

    That it holds it itself (and so never sees its end) is a finding of its own.
    """
    found = dict.fromkeys(end.pid for end in find_other_ends(pid, fd, ends))
    return tuple(sorted(found, key=lambda other: other == pid))


def find_other_ends(pid: int, fd: int, ends: Iterable[DescriptorHolder]) -> list[DescriptorHolder]:
    """Return of `ends`, all that are open of a pipe, the other end of descriptor `fd` of `pid`."""
    known = list(ends)
    mine = next((end for end in known if (end.pid, end.fd) == (pid, fd)), None)
    writers = mine is None or mine.reads
    return [
        end
        for end in known
        if (end.writes if writers else end.reads) and (end.pid, end.fd) != (pid, fd)
    ]


def name_ends(ends: Iterable[DescriptorHolder]) -> tuple[PipeEnd, ...]:
    """Return these ends with the names and parents of the processes that have them."""
    known = [(end, read_stat(end.pid)) for end in ends]
    return tuple(
        PipeEnd(end.pid, end.fd, name_of(end.pid), about.ppid if about else 0)
        for end, about in known
    )
