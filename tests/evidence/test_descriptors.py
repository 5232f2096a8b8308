"""Descriptors and sockets, as the kernel tells them."""

from __future__ import annotations

import pytest
from hangbisect.evidence import descriptors
from hypothesis import given
from hypothesis import strategies as st

anything = st.one_of(st.text(), st.from_regex(r"[0-9a-f: \->()]{0,80}"))


def test_a_line_of_proc_net_tcp() -> None:
    line = "0: 0100007F:1F90 0200007F:C350 01 00000000:00000000 00:00000000 00000000 0 0 4242 1 0"
    found = descriptors.parse_proc_net(line, "tcp")
    assert found is not None
    assert (found.inode, found.state) == (4242, "ESTABLISHED")
    assert (found.local, found.peer) == ("127.0.0.1:8080", "127.0.0.2:50000")


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
    descriptors.parse_inet_diag(data, "tcp6")
    descriptors.parse_unix_diag(data)


@given(anything)
def test_any_text_of_proc_is_taken(text: str) -> None:
    descriptors.parse_descriptor_info(text)
    descriptors.classify_link(text)
    descriptors.parse_proc_net(text, "tcp")
    descriptors.parse_socket_inode(text)
