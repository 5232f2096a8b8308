"""Descriptors and sockets, as the kernel tells them."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.process_facts import Descriptor, PipeEnd, Socket
from hangbisect.evidence import descriptors
from hypothesis import given
from hypothesis import strategies as st

from .own_threads import wait_until

Start = Callable[..., subprocess.Popen[str]]
anything = st.one_of(st.text(), st.from_regex(r"[0-9a-f: \->()]{0,80}"))


def test_a_line_of_proc_net_tcp() -> None:
    line = "0: 0100007F:1F90 0200007F:C350 01 00000000:00000000 00:00000000 00000000 0 0 4242 1 0"
    found = descriptors.parse_proc_net(line, "tcp")
    assert found is not None
    assert (found.inode, found.state) == (4242, "ESTABLISHED")
    assert (found.local, found.peer) == ("127.0.0.1:8080", "127.0.0.2:50000")


def test_how_often_what_was_sent_is_sent_again() -> None:
    """Timer 1 is that of a retransmission, 4 that of probes (Linux, proc_net_tcp): of a window of
    zero that the other side tells of, or where a route is gone, and then none is answered.
    """
    line = "0: 0100007F:1F90 0200007F:C350 01 000000C0:00000000 {}:00000042 {} 0 {} 4242 1 0"
    counts = []
    for timer, again, probes in (("01", "00000005", 0), ("04", "00000005", 0), ("04", "0", 4)):
        found = descriptors.parse_proc_net(line.format(timer, again, probes), "tcp")
        assert found is not None
        counts.append(found.resent)
    assert counts == [5, 0, 4]


@pytest.mark.parametrize(
    ("link", "kind"),
    [
        ("socket:[1]", "socket"),
        ("pipe:[1]", "pipe"),
        ("anon_inode:[eventpoll]", "anon"),
        ("/dev/pts/0", "tty"),
        ("/dev/nvidia0", "device"),
        ("/dev/shm/x", "file"),
        ("/memfd:x (deleted)", "file"),
        ("/data/x", "file"),
        ("net:[4026531840]", "unknown"),
    ],
)
def test_what_a_descriptor_is(link: str, kind: str) -> None:
    assert descriptors.classify_link(link) == kind


@given(st.binary(max_size=400))
def test_netlink_parsers_never_raise(data: bytes) -> None:
    for _, body in descriptors.parse_netlink_messages(data):
        descriptors.parse_inet_diag(body, "tcp")
        descriptors.parse_unix_diag(body)
        descriptors.parse_queued(body)
    descriptors.parse_inet_diag(data, "tcp6")
    descriptors.parse_unix_diag(data)


@given(anything)
def test_any_text_of_proc_is_taken(text: str) -> None:
    descriptors.parse_descriptor_info(text)
    descriptors.classify_link(text)
    descriptors.parse_proc_net(text, "tcp")
    descriptors.parse_socket_inode(text)


# ---- sockets of this process ---------------------------------------------------------------------


def inode_of(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def name_of(address: tuple[object, ...]) -> str:
    host, port = str(address[0]), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def connected(host: str = "127.0.0.1") -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a TCP connection: the one that connected first."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, 0), family=family))
        address = server.getsockname()[:2]
        client = stack.enter_context(socket.create_connection(address, timeout=60))
        yield client, stack.enter_context(server.accept()[0])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_of_a_connection_over_tcp_both_ends_and_the_payload_are_known(host: str) -> None:
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("there is no IPv6 here")
    with connected(host) as (client, accepted):
        client.sendall(bytes(54_321))
        left = 54_321
        while left:
            left -= len(accepted.recv(left))
        missing: list[str] = []
        known = descriptors.read_sockets(missing)
        one, other = known[inode_of(client)], known[inode_of(accepted)]
        ends = (name_of(client.getsockname()), name_of(accepted.getsockname()))
    assert missing == []
    assert (one.local, one.peer) == (other.peer, other.local) == ends
    assert (one.state, other.state) == ("ESTABLISHED", "ESTABLISHED")
    assert other.received == 54_321
    assert one.sent in (54_321, 54_322)  # the handshake of who connects counts as a byte
    assert one.received == 0


def test_what_nobody_has_read_or_accepted_is_counted() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=60) as client,
    ):
        missing: list[str] = []
        assert descriptors.read_sockets(missing)[inode_of(server)].unread == 1
        accepted, _ = server.accept()
        with accepted:
            client.sendall(bytes(321))
            accepted.recv(1, socket.MSG_PEEK)  # all of it is there
            known = descriptors.read_sockets(missing)
            assert known[inode_of(accepted)].unread == 321
            assert known[inode_of(server)].unread == 0
    line = "0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000 0 0 77 1"
    found = descriptors.parse_proc_net(line, "tcp")
    assert found is not None
    assert (found.state, found.unread) == ("LISTEN", 3)


def test_an_address_of_ipv4_in_a_socket_of_ipv6_reads_as_what_it_is() -> None:
    """ipv6(7): a server on :: has its connections over IPv4 as ::ffff:127.0.0.1."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("no socket serves both here")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port), timeout=60)
        with client, server.accept()[0] as accepted:
            found = descriptors.read_sockets()[inode_of(accepted)]
            assert found.local == f"127.0.0.1:{port}"
            assert found.peer == name_of(client.getsockname())


def test_a_socket_that_listens_has_no_peer_and_one_of_udp_no_counts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = descriptors.read_sockets()[inode_of(server)]
        assert (found.state, found.peer) == ("LISTEN", "")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        found = descriptors.read_sockets()[inode_of(one)]
        assert (found.family, found.local) == ("udp", name_of(one.getsockname()))
        assert found.received is None


def test_who_closed_first_has_an_end_left_that_is_of_no_process() -> None:
    """Its state is FIN_WAIT2 until the other side closes, too (RFC 9293, 3.3.2)."""
    with connected() as (client, accepted):
        mine, port = name_of(client.getsockname()), name_of(accepted.getsockname())
        client.close()

        def read_states() -> list[str]:
            left: list[Socket] = []
            descriptors.read_sockets(left=left)
            return [one.state for one in left if (one.local, one.peer) == (mine, port)]

        wait_until(read_states, lambda states: states == ["FIN_WAIT2"])
        assert descriptors.read_sockets()[inode_of(accepted)].state == "CLOSE_WAIT"


def test_unix_sockets_know_their_other_end_and_its_name(tmp_path: Path) -> None:
    one, other = socket.socketpair()
    with one, other:
        known = descriptors.read_sockets()
        assert known[inode_of(one)].peer_inode == inode_of(other)
        assert known[inode_of(other)].peer_inode == inode_of(one)
    for address, name in (
        (str(tmp_path / "s"), str(tmp_path / "s")),
        (f"\0hangbisect-{os.getpid()}", f"@hangbisect-{os.getpid()}"),
    ):
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(address)
            server.listen()
            client.connect(address)
            with server.accept()[0] as accepted:
                known = descriptors.read_sockets()
                assert known[inode_of(server)].local == name
                assert known[inode_of(server)].peer_inode is None
                assert known[inode_of(client)].peer == name
                assert known[inode_of(client)].peer_inode == inode_of(accepted)


def test_proc_and_the_kernels_answers_tell_the_same_of_our_connections() -> None:
    with connected() as (client, _):
        by_proc = descriptors._read_proc_net("self", "tcp")[inode_of(client)]
        by_kernel = descriptors.read_sockets()[inode_of(client)]
    assert by_proc == replace(by_kernel, received=None, sent=None)
    assert descriptors._read_proc_net("self", "no such table") == {}


def test_how_long_nothing_has_come_in() -> None:
    """tcpi_last_data_recv counts from the last payload (include/uapi/linux/tcp.h)."""
    with connected() as (client, accepted):
        time.sleep(0.15)
        client.sendall(b"x")
        accepted.recv(1)
        quiet = descriptors.read_quiet_times()
        assert quiet[inode_of(client)] > quiet[inode_of(accepted)]
        assert quiet[inode_of(client)] >= 0.1


def test_what_the_kernel_refuses_is_an_error() -> None:
    """netlink(7): NLMSG_ERROR has a negative errno; no protocol has the number 255."""
    with pytest.raises(OSError, match=r"No such file or directory|Invalid argument"):
        list(descriptors._ask_sock_diag(struct.pack("=BBBxI48x", 255, 255, 0, 0xFFF)))


def test_a_process_with_a_network_of_its_own_is_read_by_itself(start: Start) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare here")
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    program = (
        "import socket; s = socket.socket(); s.bind(('0.0.0.0', 7)); s.listen(); "
        "print(1, flush=True); input()"
    )
    process = start(
        *(unshare, *rights, "--net", sys.executable, "-I", "-S", "-c", program),
        stdin=subprocess.PIPE,
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        pytest.skip("no network namespace can be made here")
    missing: list[str] = []
    found = descriptors.read_sockets_of_process(process.pid, missing)
    assert found is not None
    assert [(one.local, one.state, one.received) for one in found.values()] == [
        ("0.0.0.0:7", "LISTEN", None)
    ]
    assert missing == [f"{process.pid} has a network of its own: bytes over TCP were not counted."]
    assert descriptors.read_sockets_of_process(os.getpid(), missing) is None
    assert descriptors.read_sockets_of_process(1 << 30, missing) is None


# ---- descriptors of this process -----------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def describe(fd: int) -> Descriptor:
    links = descriptors.read_links(os.getpid())
    known = descriptors.read_sockets()
    return descriptors.describe_descriptor(os.getpid(), fd, links.get(fd), known)


def test_what_descriptors_of_this_process_are(pipe: tuple[int, int], tmp_path: Path) -> None:
    assert describe(pipe[0]).kind == "pipe"
    with (tmp_path / "a file").open("w+b") as file:
        file.write(bytes(300))
        file.flush()
        file.seek(120)
        found = describe(file.fileno())
        assert (found.kind, found.path, found.position) == ("file", file.name, 120)
        number = file.fileno()
    assert describe(number) == Descriptor(number, "unknown", "")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = describe(server.fileno())
        assert found.kind == "socket"
        assert found.socket is not None
        assert found.socket.local == name_of(server.getsockname())
        assert found.position is None


@pytest.mark.parametrize("wchan", ["pipe_read", "anon_pipe_read", "fifo_open", "wait_for_partner"])
def test_a_fifo_looks_like_a_file_and_is_told_by_where_its_reader_waits(wchan: str) -> None:
    assert descriptors.classify_link("/data/x", wchan) == "fifo"
    assert descriptors.classify_link("/data/x", "folio_wait_bit_common") == "file"
    assert descriptors.classify_link("/data/x", polled=True) == "fifo"  # no file can be polled


def test_who_has_which_end_of_a_pipe(start: Start, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    program = "import sys; print(1, flush=True); input()"
    process = start(
        *(sys.executable, "-I", "-S", "-c", program),
        stdin=subprocess.PIPE,
        pass_fds=[writer],
    )
    assert process.stdout is not None
    process.stdout.readline()
    link = os.readlink(f"/proc/self/fd/{reader}")
    me = os.getpid()
    ends = descriptors.find_holders([link, "pipe:[0]"])
    assert sorted(ends[link]) == sorted(
        [
            descriptors.DescriptorHolder(me, reader, reads=True, writes=False),
            descriptors.DescriptorHolder(me, writer, reads=False, writes=True),
            descriptors.DescriptorHolder(process.pid, writer, reads=False, writes=True),
        ]
    )
    assert ends["pipe:[0]"] == []
    # Who waits in read() gets no end of file while it has the end to write open itself.
    assert descriptors.find_pipe_peers(me, reader, ends[link]) == (process.pid, me)
    assert descriptors.find_pipe_peers(process.pid, writer, ends[link]) == (me,)
    named = descriptors.name_ends(descriptors.find_other_ends(me, reader, ends[link]))
    assert PipeEnd(process.pid, writer, comm(process.pid), me) in named
    assert descriptors.find_holders([]) == {}


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")


def test_an_end_of_a_process_that_is_gone_has_no_name() -> None:
    gone = descriptors.DescriptorHolder(1 << 30, 3, reads=True, writes=False)
    assert descriptors.name_ends([gone]) == (PipeEnd(1 << 30, 3, "", 0),)
    assert descriptors.read_descriptor_info(1 << 30, 3) == descriptors.DescriptorInfo()
    assert descriptors.read_network_namespace(1 << 30) == ""
