"""What nodes say to each other, and what is said of how they met."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest
from hangbisect.doctor import nodes
from hangbisect.doctor.nodes import Meeting, Member, Reached, as_member, base_port
from hypothesis import given
from hypothesis import strategies as st

from .made_up import TORCHRUN, levels, said, setting

N02 = Member(1, "n02", "10.0.0.2", 41000)
JOB = setting(launcher="torchrun", world=4, local_world=2, ancestors=(TORCHRUN,), MASTER_ADDR="n01")


def test_a_member_is_where_it_says_or_where_it_came_from() -> None:
    said_by = {"node": 1, "host": "n02", "address": "", "port": 41000}
    assert as_member(said_by, "10.0.0.2") == N02
    assert as_member({**said_by, "address": "192.168.0.2"}, "10.0.0.2") == Member(
        1, "n02", "192.168.0.2", 41000
    )


@pytest.mark.parametrize("port", [0, -1, 65536, "80", True, None])
def test_what_is_no_member(port: object) -> None:
    assert as_member({"node": 1, "host": "n02", "port": port}, "x") is None
    assert as_member([], "x") is None
    assert as_member({"node": "1", "port": 80}, "x") is None


@given(st.dictionaries(st.sampled_from(["node", "host", "port", "address"]), st.text() | st.none()))
def test_any_line_is_taken_for_a_member(line: dict[str, object]) -> None:
    as_member(line, "10.0.0.2")


@given(st.text(max_size=8))
def test_any_text_is_taken_for_a_port(text: str) -> None:
    assert 0 < base_port({"MASTER_PORT": text}) < 65536


def test_doctors_of_other_jobs_are_told_apart() -> None:
    one, other = (setting(MASTER_ADDR="n01", SLURM_JOB_ID=job) for job in "12")
    assert nodes.greeting(one) == nodes.greeting(one)
    assert nodes.greeting(one) != nodes.greeting(other)


def test_one_node_meets_nobody() -> None:
    assert levels(nodes.judge_meeting, Meeting(1)) == ["ok"]
    met = nodes.meet_nodes(setting(launcher="torchrun", ancestors=(TORCHRUN,)))
    assert (met.nodes, met.host, met.reached) == (1, "n01", ())
    assert met.versions["Python"] == platform.python_version()


def test_alone_in_an_allocation_it_says_how_to_start_it_everywhere() -> None:
    (found,) = nodes.judge_meeting(setting(SLURM_NNODES="4"), Meeting(4))
    assert (found.level, "srun --nodes=4" in found.next) == ("unknown", True)


def test_all_reached() -> None:
    ((level, value),) = said(
        nodes.judge_meeting, Meeting(2, "n01:29501", (Reached(N02, 0.003),)), JOB
    )
    assert (level, "n02 in 3 ms" in value) == ("ok", True)


def test_a_node_that_is_not_reached_or_did_not_come() -> None:
    blocked = Meeting(2, "n01:29501", (Reached(N02, 3.0, "does not answer"),))
    ((level, value),) = said(nodes.judge_meeting, blocked, JOB)
    assert (level, "node 1 (n02, 10.0.0.2:41000) is not reached" in value) == ("problem", True)
    missing = Meeting(3, "n01:29501", (Reached(N02, 0.0),), missing=1, waited=18.0)
    ((level, value),) = said(nodes.judge_meeting, missing, JOB)
    assert (level, "1 of 2 other nodes did not come" in value) == ("problem", True)
    nobody = Meeting(2, error="no doctor of rank 0 was met at n01", waited=18.0)
    assert levels(nodes.judge_meeting, nobody, JOB) == ["problem"]
    # That is told by another check.
    assert levels(nodes.judge_meeting, Meeting(2, unnamed=True), JOB) == ["unknown"]


SAME = {"Python": "3.12.3", "driver": "570.158.01", "torch": "2.11.0+cu130", "NCCL": "2.28.9"}


def met(**other: str) -> Meeting:
    """Two nodes, of which the other one has something else."""
    there = replace(N02, versions={k: v for k, v in (SAME | other).items() if v})
    return Meeting(2, "n01:29501", (Reached(there, 0.003),), host="n01", versions=SAME)


def test_nodes_that_have_the_same_are_well() -> None:
    ((level, value),) = said(nodes.judge_versions, met())
    assert (level, value.endswith("NCCL 2.28.9 on 2 nodes")) == ("ok", True)


@pytest.mark.parametrize(
    ("other", "level", "words"),
    [
        ({"NCCL": "2.27.5"}, "problem", "NCCL: 2.28.9 on n01, 2.27.5 on n02"),
        ({"NCCL": ""}, "problem", "NCCL: 2.28.9 on n01, none on n02"),
        ({"driver": "550.54.15"}, "warning", "driver: 570.158.01 on n01, 550.54.15 on n02"),
        ({"GPUs": "8 x NVIDIA H100"}, "warning", "GPUs: none on n01, 8 x NVIDIA H100 on n02"),
    ],
)
def test_what_differs_is_said_with_the_hosts(other: dict[str, str], level: str, words: str) -> None:
    assert said(nodes.judge_versions, met(**other)) == [(level, words)]


def test_what_a_node_says_of_its_versions_is_not_believed_without_bounds() -> None:
    line = {"node": 1, "host": "n02", "port": 80, "versions": {"a" * 200: "b" * 200, "c": 3}}
    found = as_member(line, "10.0.0.2")
    assert found is not None
    assert found.versions == {"a" * 80: "b" * 80}
    assert as_member(line | {"versions": [1]}, "x") == Member(1, "n02", "x", 80)
