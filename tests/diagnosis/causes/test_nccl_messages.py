"""What NCCL itself says: versions that differ, and an address that it cannot reach.

The lines have the form of NVIDIA/nccl#975, pytorch/pytorch#68893, horovod/horovod#666 and of
initTransportsRank (init.cc); hosts, processes and addresses are made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.evidence.gpus.nccl_lines import collect_nccl_facts, read_nccl_lines
from hypothesis import given
from hypothesis import strategies as st

from ..made_up import job, look, rank
from .scenes import TORCHRUN, Facts, Shows, causes_of
from .test_nccl import INIT

WORLD = 4
REFUSED = (
    "misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to {} failed : Connection refused"
)
RETRY = "NCCL INFO Call to connect returned Connection timed out, retrying"
MEETS = "NCCL INFO Bootstrap : Using {}<0>"
VERSION = "NCCL INFO NCCL version {}+cuda12.4"
DIFFER = (
    "init.cc:1043 NCCL WARN Mismatched NCCL version detected : rank 3 version 22005 rank 0 version "
    "22105"
)
ASLEEP = look("wait_for_data train.py:12", "<module> train.py:30", call="clock_nanosleep")


def saying(lines: Mapping[int, Sequence[str]], one: object = INIT) -> Facts:
    """Four ranks, each with what NCCL said in its process."""
    entries = [
        (line, number)
        for number, texts in lines.items()
        for line in read_nccl_lines([f"n01:{100 + number}:1 [0] {text}" for text in texts])
    ]
    found = collect_nccl_facts(entries)
    ranks: list[RankFacts] = []
    for number in range(WORLD):
        made = rank(number, one, environment=TORCHRUN)  # type: ignore[arg-type]
        ranks.append(replace(made, nccl=found.get(number, made.nccl)))
    return job(world=WORLD), ranks


def versions_differ() -> Facts:
    return saying({n: [VERSION.format("2.20.5" if n == 3 else "2.21.5")] for n in range(WORLD)})


def unreached() -> Facts:
    refused = [REFUSED.format("10.0.0.1<45763>")]
    return saying({0: [MEETS.format("docker0:10.0.0.1")], 2: refused, 3: refused})


def variables_differ(value: str = "Tree", of: int = 3, one: object = INIT) -> Facts:
    """All ranks have NCCL_ALGO=Ring, one has another."""
    facts, ranks = saying({}, one)
    return facts, [
        replace(made, environment={**TORCHRUN, "NCCL_ALGO": value if number == of else "Ring"})
        for number, made in enumerate(ranks)
    ]


SHOWS: Shows = {
    "nccl-versions-differ": versions_differ,
    "nccl-cannot-connect": unreached,
    "nccl-variables-differ": variables_differ,
}


def test_which_variable_is_another_on_whom_is_said() -> None:
    cause = causes_of(variables_differ())["nccl-variables-differ"]
    assert cause.matched[0] == "NCCL_ALGO is Ring on ranks 0-2, Tree on rank 3"
    assert cause.why.startswith("By NCCL_ALGO each rank decides")
    assert cause.level != "guess"


def test_one_value_on_all_or_a_variable_of_each_node_is_no_cause() -> None:
    assert "nccl-variables-differ" not in causes_of(variables_differ("Ring"))
    facts, ranks = variables_differ("Ring")
    own = [
        {"NCCL_SOCKET_IFNAME": f"eth{number % 2}", "NCCL_DEBUG_FILE": f"/tmp/{number}"}
        for number in range(WORLD)
    ]
    ranks = [
        replace(made, environment={**made.environment, **more})
        for made, more in zip(ranks, own, strict=True)
    ]
    assert "nccl-variables-differ" not in causes_of((facts, ranks))


def test_a_rank_whose_variables_nobody_could_read_is_not_without_them() -> None:
    facts, ranks = variables_differ("Ring")
    assert "nccl-variables-differ" not in causes_of(
        (facts, [replace(one, environment={}) if one.rank == 1 else one for one in ranks])
    )


@pytest.mark.parametrize("lost", [(0, 1), (1, 2), (2, 3), (0, 3)])
def test_with_the_variables_of_half_of_the_ranks_missing(lost: tuple[int, ...]) -> None:
    facts, ranks = variables_differ()
    half = [replace(one, environment={}) if one.rank in lost else one for one in ranks]
    found = causes_of((facts, half)).get("nccl-variables-differ")
    assert (found is None) == (3 in lost)
    assert found is None or "Tree on rank 3" in found.matched[0]


def test_who_has_which_version_is_said() -> None:
    cause = causes_of(versions_differ())["nccl-versions-differ"]
    assert cause.matched == ("NCCL 2.20.5 on rank 3, 2.21.5 on ranks 0-2",)
    assert cause.level == "seen"


def test_nccls_own_word_is_enough() -> None:
    cause = causes_of(saying({3: [DIFFER]}))["nccl-versions-differ"]
    assert cause.matched == (
        "NCCL says that rank 3 of a communicator has 2.20.5, and rank 0 of it 2.21.5",
    )


@pytest.mark.parametrize("version", ["2.21.5", ""])
def test_one_version_on_all_is_no_cause(version: str) -> None:
    lines = {n: [VERSION.format(version)] if version else [] for n in range(WORLD)}
    assert "nccl-versions-differ" not in causes_of(saying(lines))


def test_who_cannot_reach_whom_is_said() -> None:
    cause = causes_of(unreached())["nccl-cannot-connect"]
    assert cause.matched == (
        "NCCL on ranks 2-3 cannot connect to 10.0.0.1<45763>, where rank 0 is (docker0): "
        "Connection refused",
    )
    assert cause.level == "seen"


def test_where_the_line_does_not_say_where_to_it_is_where_the_first_rank_is() -> None:
    facts = saying({0: [MEETS.format("eth0:10.0.0.1")], 1: [RETRY]})
    assert causes_of(facts)["nccl-cannot-connect"].matched == (
        "NCCL on rank 1 cannot connect to another rank (rank 0 is at 10.0.0.1, eth0): Connection "
        "timed out",
    )


def test_without_a_word_of_the_others_it_is_said_all_the_same() -> None:
    cause = causes_of(saying({1: [RETRY]}))["nccl-cannot-connect"]
    assert cause.matched == ("NCCL on rank 1 cannot connect to another rank: Connection timed out",)


@pytest.mark.parametrize("made", [versions_differ, unreached])
def test_who_sleeps_in_code_of_its_own_does_not_wait_for_nccl(made: object) -> None:
    facts, ranks = made()  # type: ignore[operator]
    others = [replace(rank(one.rank, ASLEEP, environment=TORCHRUN), nccl=one.nccl) for one in ranks]
    assert not set(SHOWS) & set(causes_of((facts, others)))


def test_variables_that_differ_keep_no_rank_asleep() -> None:
    facts = variables_differ(one=ASLEEP)
    assert not set(SHOWS) & set(causes_of(facts))


@given(st.sets(st.integers(0, WORLD - 1)))
def test_with_a_part_of_it_nothing_else_is_said(lost: set[int]) -> None:
    """Without the ranks that tell it the cause is not said; else the same ranks are in it."""
    for facts, ranks in (versions_differ(), unreached()):
        left = [replace(one, nccl=type(one.nccl)()) if one.rank in lost else one for one in ranks]
        for cause in causes_of((facts, left)).values():
            if cause.id == "nccl-versions-differ":
                assert 3 not in lost
                assert "2.20.5 on rank 3" in cause.matched[0]
            elif cause.id == "nccl-cannot-connect":
                assert not {2, 3} <= lost
                assert "10.0.0.1<45763>" in cause.matched[0]
                assert "rank 0" not in cause.matched[0] or 0 not in lost
