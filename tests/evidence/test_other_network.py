"""Addresses of a machine, as the kernel lists them."""

from __future__ import annotations

import socket

import pytest
from hangbisect.evidence.other_network import parse_local_addresses, read_local_addresses
from hypothesis import given
from hypothesis import strategies as st

# Of a container, shortened.
FIB_TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
     +-- 172.17.0.0/16 2 0 2
        +-- 172.17.0.0/30 2 0 2
           |-- 172.17.0.0
              /16 link UNICAST
           |-- 172.17.0.2
              /32 host LOCAL
        |-- 172.17.255.255
           /32 link BROADCAST
"""
IF_INET6 = """\
00000000000000000000000000000001 01 80 10 80       lo
fe80000000000000042242fffe110002 0b 40 20 80     eth0
"""


def test_addresses_are_those_of_the_machine_alone() -> None:
    assert parse_local_addresses(FIB_TRIE, IF_INET6) == {
        *("127.0.0.1", "172.17.0.2", "::1", "fe80::422:42ff:fe11:2")
    }


@given(st.text(), st.text())
def test_any_text_is_taken_for_them(routes: str, interfaces: str) -> None:
    parse_local_addresses(routes, interfaces)


def test_ours_are_read_and_of_a_process_that_is_gone_none() -> None:
    found = read_local_addresses(None)
    if found:
        assert all(socket.getaddrinfo(one, None) for one in found)
    assert read_local_addresses(1 << 30) == frozenset()


@pytest.mark.parametrize("line", ["zz 01 80 10 80 lo", "00 01 80", ""])
def test_lines_that_are_no_address_are_none(line: str) -> None:
    assert parse_local_addresses("", line) == frozenset()
