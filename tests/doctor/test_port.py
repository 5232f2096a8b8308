"""MASTER_PORT: who has it, who answers at it."""

from __future__ import annotations

import os
import socket

import pytest
from hangbisect.doctor.examination import CheckedProcess
from hangbisect.doctor.master_address import Port, Reached, master_port, read_port

from .made_up import TORCHRUN, levels, said, setting

OTHER = CheckedProcess(4711, "python", ("python", "train.py"), 7200.0)


def test_a_port_that_is_free() -> None:
    assert said(master_port, Port("", True)) == [("ok", "port 29500 is free")]
    ((level, value),) = said(master_port, Port("40000", True, dynamic=(32768, 60999)))
    assert (level, "outgoing connections (32768-60999)" in value) == ("ok", True)


@pytest.mark.parametrize("text", ["0", "65536", "x", "-1", "29500 29501"])
def test_a_port_that_is_none(text: str) -> None:
    assert levels(master_port, Port(text, True)) == ["problem"]


def test_who_has_a_port_is_named() -> None:
    taken = Port("29500", True, "Address already in use", (OTHER,), True)
    ((level, value),) = said(master_port, taken)
    assert level == "problem"
    assert 'taken by python (4711, 2.0 h old, "python train.py")' in value
    # Nobody has asked for that one yet.
    unasked = Port("", True, "Address already in use", (OTHER,), True)
    assert levels(master_port, unasked) == ["warning"]
    unseen = Port("29500", True, "Address already in use", (), True)
    assert levels(master_port, unseen) == ["problem"]


def test_the_launchers_own_store_is_no_stranger() -> None:
    taken = Port("29500", True, "Address already in use", (OTHER,), True)
    ours = setting(launcher="torchrun", ancestors=(TORCHRUN,), pids=(4711,))
    agent = setting(TORCHELASTIC_USE_AGENT_STORE="True")
    assert levels(master_port, taken, ours) == ["ok"]
    assert levels(master_port, taken, agent) == ["ok"]


def test_a_port_below_1024_is_roots() -> None:
    refused = Port("80", True, os.strerror(13))
    ((level, value),) = said(master_port, refused)
    assert (level, "Permission denied" in value) == ("problem", True)


@pytest.mark.parametrize(
    ("reached", "level"),
    [
        ("answers", "ok"),
        ("refused", "ok"),
        ("silent", "problem"),
        ("unreachable", "problem"),
        (None, "unknown"),
    ],
)
def test_a_port_of_another_machine(reached: Reached | None, level: str) -> None:
    there = setting(MASTER_ADDR="n01")
    assert levels(master_port, Port("29500", False, reached=reached), there) == [level]


def test_a_port_of_this_machine_is_tried_for_real() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = read_port(setting(MASTER_PORT=str(port)))
    # It is our own, and that is nobody else.
    assert (found.here, found.taken != "", found.listened, found.holders) == (True, True, False, ())
    assert levels(master_port, found) == ["ok"]
