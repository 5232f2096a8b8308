"""MASTER_ADDR and the machine's name: what is said of made-up answers."""

from __future__ import annotations

import pytest
from hangbisect.doctor import master_address as doctor
from hangbisect.doctor.master_address import NameAnswer, Named, Names
from hypothesis import given
from hypothesis import strategies as st

from .made_up import levels, said, setting

QUICK = NameAnswer(("10.0.0.1",), 0.002)
NAMED = NameAnswer(("n01",), 0.01)
NO_NAME = NameAnswer(seconds=0.01, error="Name or service not known")


def named(name: str, forward: NameAnswer = QUICK, backward: NameAnswer = NAMED) -> Named:
    return Named(name, forward, backward)


def names(of_master: Named | None, own: Named | None = None, ours: bool = True) -> Names:
    addresses = of_master.forward.said if of_master and ours else ()
    return Names(of_master, own or named("n01"), addresses)


@pytest.mark.parametrize(
    ("answer", "level", "text"),
    [
        (QUICK, "ok", "n01 is 10.0.0.1 (2 ms)"),
        (NameAnswer(("10.0.0.1",), 2.5), "warning", "2.5 s"),
        (NO_NAME, "problem", "Name or service not known"),
        (NameAnswer(), "problem", "no answer within 5.0 s"),
    ],
)
def test_a_name_that_is_looked_up(answer: NameAnswer, level: str, text: str) -> None:
    ((found, value),) = said(doctor.master_address, names(named("n01", answer)))
    assert (found, text in value) == (level, True)
    ((found, value),) = said(doctor.own_name, names(None, named("n01", answer)))
    assert (found, text in value) == (level, True)


def test_without_master_addr_nothing_is_wrong() -> None:
    assert levels(doctor.master_address, names(None)) == ["ok"]


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "127.0.1.1"])
def test_loopback_is_a_problem_for_several_nodes(address: str) -> None:
    facts = names(named(address, NameAnswer(("127.0.0.1",), 0.0)))
    assert levels(doctor.master_address, facts) == ["ok"]
    assert levels(doctor.master_address, facts, setting(SLURM_NNODES="2")) == ["problem"]


def test_a_name_that_means_loopback_is_one_too() -> None:
    facts = names(named("n01", NameAnswer(("127.0.1.1",), 0.0)))
    assert levels(doctor.master_address, facts, setting(GROUP_WORLD_SIZE="2")) == ["problem"]


def test_gloo_tells_the_others_the_address_of_the_machines_name() -> None:
    facts = names(None, named("n01", NameAnswer(("127.0.1.1",), 0.0)))
    two, told = setting(SLURM_NNODES="2"), setting(SLURM_NNODES="2", GLOO_SOCKET_IFNAME="eth0")
    assert levels(doctor.own_name, facts) == ["ok"]
    assert levels(doctor.own_name, facts, two) == ["problem"]
    assert levels(doctor.own_name, facts, told) == ["ok"]


def test_rank_0_that_does_not_have_the_address() -> None:
    there = setting(launcher="srun", world=2, local_world=1, SLURM_NNODES="2")
    facts = names(named("n09"), ours=False)
    assert levels(doctor.master_address, facts, there) == ["ok", "warning"]
    assert levels(doctor.master_address, names(named("n01")), there) == ["ok"]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("n01:29500", "has a port, which belongs in MASTER_PORT (29500)"),
        ("tcp://n01", "is a URL"),
        ("n01 ", "has a blank"),
    ],
)
def test_what_is_no_address(address: str, text: str) -> None:
    ((level, value),) = said(doctor.master_address, names(named(address, NO_NAME)))
    assert (level, text in value) == ("problem", True)


@given(st.text(max_size=20))
def test_any_text_is_taken_for_an_address(text: str) -> None:
    assert doctor.misspelled("n01") == doctor.misspelled("fe80::1") == ""
    doctor.misspelled(text)


def test_looking_up_backwards() -> None:
    slow, silent = NameAnswer(("n01",), 3.0), NameAnswer()
    facts = names(named("n01", backward=slow), named("n02", backward=silent))
    assert levels(doctor.backward, facts) == ["warning", "problem"]
    # That an address has no name is no fault, if it is said at once.
    assert levels(doctor.backward, names(None, named("n01", backward=NO_NAME))) == ["ok"]
