"""The spellings of NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME, and what they choose."""

from __future__ import annotations

import pytest
from hangbisect.base.addresses import Wanted, parse_gloo, parse_nccl
from hangbisect.doctor.interfaces import (
    Interface,
    address_for_peers,
    cards,
    chosen,
    gloo,
    nccl,
    parse_six,
    reachable,
)
from hypothesis import given
from hypothesis import strategies as st

from .made_up import levels, said, setting

LO = Interface("lo", loopback=True, addresses=("127.0.0.1",))
ETH0 = Interface("eth0", addresses=("10.0.0.5",))
IB0 = Interface("ib0", addresses=("192.168.1.5",))
DOCKER = Interface("docker0", addresses=("172.17.0.1",))
DOWN = Interface("eth1", up=False, addresses=("10.0.1.5",))
BARE = Interface("eth2")
IPV4 = ("10.0.0.9",)
HERE = (LO, ETH0, DOCKER, DOWN, BARE)

NAMES = st.text("abcdeht0123456789-_.", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("eth", Wanted(("eth",))),
        ("eth0,ib0", Wanted(("eth0", "ib0"))),
        ("=eth0", Wanted(("eth0",), exact=True)),
        ("^docker,lo", Wanted(("docker", "lo"), excluded=True)),
        ("^=eth0,lo", Wanted(("eth0", "lo"), exact=True, excluded=True)),
        ("=mlx5_0:1,mlx5_1:1", Wanted(("mlx5_0", "mlx5_1"), exact=True)),
        ("eth0,,", Wanted(("eth0",))),
        ("^", Wanted((), excluded=True)),
    ],
)
def test_what_a_value_means_to_nccl(value: str, wanted: Wanted) -> None:
    assert parse_nccl(value) == wanted


@given(st.text(max_size=30))
def test_any_text_is_a_value(text: str) -> None:
    parse_nccl(text)
    parse_gloo(text)
    chosen(text, HERE)
    said(nccl, HERE, setting(NCCL_SOCKET_IFNAME=text))
    said(gloo, HERE, setting(GLOO_SOCKET_IFNAME=text))
    said(cards, ("mlx5_0",), setting(NCCL_IB_HCA=text))


@given(st.lists(NAMES, min_size=1, max_size=4), NAMES)
def test_exclusion_is_the_opposite_and_exact_names_are_prefixes_too(
    names: list[str], name: str
) -> None:
    listed = ",".join(names)
    assert parse_nccl(listed).fits(name) != parse_nccl("^" + listed).fits(name)
    assert parse_nccl("=" + listed).fits(name) != parse_nccl("^=" + listed).fits(name)
    assert parse_nccl("=" + listed).fits(name) <= parse_nccl(listed).fits(name)
    assert all(parse_nccl("=" + listed).fits(one) for one in names)


@pytest.mark.parametrize(
    ("known", "name"),
    [((*HERE, IB0), "ib0"), (HERE, "eth0"), ((LO, DOCKER), "docker0"), ((LO,), "lo")],
)
def test_told_nothing_nccl_takes_the_first_that_it_likes(
    known: tuple[Interface, ...], name: str
) -> None:
    assert [one.name for one in chosen("", known)] == [name]
    # One character does not count.
    assert chosen("x", known) == chosen("", known)


@pytest.mark.parametrize(
    ("value", "level", "text"),
    [
        ("eth", "ok", "eth0 (10.0.0.5)"),
        ("=eth0,eth7", "warning", "no eth7"),
        ("ib0", "problem", "there are lo, eth0, docker0"),
        ("eth1", "problem", "eth1 is down or has no address"),
        ("eth2", "problem", "eth2 is down or has no address"),
        ("^eth,lo,docker", "problem", "leaves no interface"),
        ("^docker,lo", "ok", "eth0"),
        ("eth0, docker0", "problem", "' docker0' is the name of none"),
        ("", "ok", "NCCL takes eth0"),
    ],
)
def test_what_is_said_of_nccl(value: str, level: str, text: str) -> None:
    ((found, words),) = said(nccl, HERE, setting(NCCL_SOCKET_IFNAME=value))
    assert found == level
    assert text in words


def test_loopback_does_for_one_node_only() -> None:
    one, two = (
        setting(NCCL_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo", SLURM_NNODES=nodes)
        for nodes in "12"
    )
    assert levels(nccl, HERE, one) == levels(gloo, HERE, one) == ["ok"]
    assert levels(nccl, HERE, two) == levels(gloo, HERE, two) == ["problem"]
    assert levels(reachable, (LO,), one) == ["ok"]
    assert levels(reachable, (LO,), two) == ["problem"]
    assert levels(reachable, HERE, two) == ["ok"]


@pytest.mark.parametrize(
    ("value", "level", "text"),
    [
        ("eth0", "ok", "eth0 (10.0.0.5)"),
        ("eth0,", "ok", "eth0"),
        ("lo,eth0", "ok", "lo (127.0.0.1), eth0"),
        ("eth", "problem", "exact names only"),
        ("^lo", "problem", "exact names only"),
        ("ib0", "problem", "there is no ib0; there are lo, eth0, docker0"),
        ("eth0, lo", "problem", "' lo'"),
        ("eth1", "problem", "down"),
        ("x", "ok", "not set"),
    ],
)
def test_gloo_knows_exact_names_alone(value: str, level: str, text: str) -> None:
    ((found, words),) = said(gloo, HERE, setting(GLOO_SOCKET_IFNAME=value))
    assert found == level
    assert text in words


def test_infiniband_devices_are_named_as_interfaces_are() -> None:
    assert levels(cards, ("mlx5_0", "mlx5_1"), setting(NCCL_IB_HCA="=mlx5_1:1")) == ["ok"]
    assert levels(cards, ("mlx5_0",), setting(NCCL_IB_HCA="mlx4")) == ["warning"]
    assert levels(cards, (), setting(NCCL_IB_HCA="mlx5")) == ["warning"]
    assert levels(cards, (), setting(NCCL_IB_HCA="mlx5", NCCL_IB_DISABLE="1")) == ["ok"]


def test_peers_are_told_the_address_that_nccl_would_use() -> None:
    assert address_for_peers("docker", HERE) == "172.17.0.1"
    assert address_for_peers("", HERE) == ""
    assert address_for_peers("ib0", HERE) == ""
    both = (Interface("ib0", addresses=("fe80::1", "fd00::1")), Interface("ib1", addresses=IPV4))
    assert address_for_peers("ib", both) == "10.0.0.9"
    assert address_for_peers("ib0", both) == "fd00::1"


def test_an_address_of_the_sixth_version() -> None:
    line = "fe800000000000000000000000000001 02 40 20 80     eth0\n"
    assert parse_six(line) == ("fe80::1", "eth0")


@given(st.text("0123456789abcdef eth\n") | st.text())
def test_any_text_is_taken_for_a_line_of_addresses(text: str) -> None:
    parse_six(text)
