"""Lines of NCCL: where it could not connect to, by which interface it meets, and its version.

The lines have the form that NVIDIA/nccl-tests#166 and NVIDIA/nccl#975 (2.18), pytorch/pytorch#68893
(2.7), Oneflow-Inc/oneflow#3586 (2.7), horovod/horovod#666 (2.3), NVIDIA/nccl#1515 (2.21) and
os/linux.cc of NCCL 2.30 show; hosts, processes and addresses are made up.
"""

from __future__ import annotations

import pytest
from hangbisect.base.rank_facts import UnreachedAddress
from hangbisect.evidence.gpus.nccl_lines import (
    assign_ranks,
    collect_nccl_facts,
    read_nccl_lines,
)

AT = "10.0.0.1<45763>"


@pytest.mark.parametrize(
    ("told", "address", "reason"),
    [
        (
            "misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.1<45763> failed : "
            "Software caused connection abort",
            AT,
            "Software caused connection abort",
        ),
        (
            "include/socket.h:403 NCCL WARN Connect to "
            "fe80::14ad:64ff:fe64:b31e%veth75fa783<37671> failed : Network is unreachable",
            "fe80::14ad:64ff:fe64:b31e%veth75fa783<37671>",
            "Network is unreachable",
        ),
        (
            "misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.1<45763> returned "
            "113(No route to host) errno 115(Operation now in progress)",
            AT,
            "No route to host",
        ),
        (
            "os/linux.cc:288 (ncclOsSocketTryAgain) NCCL WARN socketStartConnect: connect to "
            "10.0.0.1<45763> returned Connection refused, exceeded error retry count after 35 "
            "attempts",
            AT,
            "Connection refused",
        ),
        (
            "NCCL INFO Call to connect returned Connection timed out, retrying",
            "",
            "Connection timed out",
        ),
        (
            "include/socket.h:360 NCCL WARN Call to connect timeout : Connection refused",
            "",
            "Connection refused",
        ),
        (
            "NCCL INFO socketPollConnect: connect returned Connection refused, retrying (3/34) "
            "after sleep for 300 msec",
            "",
            "Connection refused",
        ),
        (
            "NCCL INFO socketStartConnect: connect to 10.0.0.1<45763> returned Connection refused, "
            "retrying (3/34) after sleep for 300 msec",
            AT,
            "Connection refused",
        ),
        (
            "misc/socket.cc:466 NCCL WARN socketStartConnect: exceeded retries (20000)",
            "",
            "exceeded retries",
        ),
    ],
)
def test_where_it_cannot_connect_to(told: str, address: str, reason: str) -> None:
    (one,) = read_nccl_lines([f"n01:4711:4720 [3] {told}"])
    assert one.unreached == UnreachedAddress(address, reason)


@pytest.mark.parametrize(
    "told",
    [
        "NCCL INFO Connected all rings",
        "misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n01<57557>",
        "NCCL INFO Channel 00 : 5[5] -> 4[4] via SHM/direct/direct",
    ],
)
def test_what_is_no_failure_to_connect(told: str) -> None:
    assert [one.unreached for one in read_nccl_lines([f"n01:1:2 [3] {told}"])] in ([None], [])


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("Bootstrap : Using em1:172.18.28.82<0>", "em1:172.18.28.82"),
        ("Bootstrap: Using em1:172.18.28.82<0>", "em1:172.18.28.82"),
        (
            "Bootstrap : Using [0]ens5:172.31.0.137<0> [1]veth7:fe80::1%veth7<0>",
            "ens5:172.31.0.137",
        ),
        ("Bootstrap : Using eth0:fd00::17%eth0<0>", "eth0:fd00::17%eth0"),
    ],
)
def test_by_which_interface_it_meets(told: str, name: str) -> None:
    (one,) = read_nccl_lines([f"n01:1:2 [0] NCCL INFO {told}"])
    assert f"{one.interface}:{one.address}" == name


def test_once_a_communicator_is_made_what_failed_before_is_over() -> None:
    tries = "n01:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying"
    made = "n01:1:2 [0] NCCL INFO comm 0x5 rank 1 nranks 2 cudaDev 0 busId 1 commId 0xd - Init {}"
    over = [tries, made.format("START"), tries, made.format("COMPLETE")]
    for lines, still in ((over, 0), (over[:3], 1), ([*over, tries], 1)):
        found = collect_nccl_facts([(one, 1) for one in read_nccl_lines(lines)])
        assert len(found[1].unreached if 1 in found else ()) == still


def test_a_warning_that_names_the_address_counts_more_than_tries_that_do_not() -> None:
    lines = [
        "n01:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying",
        f"n01:1:2 [0] misc/socket.cc:484 NCCL WARN Connect to {AT} failed : Connection refused",
    ]
    (facts,) = collect_nccl_facts([(one, 0) for one in read_nccl_lines(lines)]).values()
    assert facts.unreached == (UnreachedAddress(AT, "Connection refused"),)


def test_the_version_that_stands_alone_is_that_of_the_files_rank() -> None:
    lines = read_nccl_lines(["NCCL version 2.14.3+cuda11.5", "NCCL version of somebody"])
    assert [one.version for one in lines] == ["2.14.3"]
    assert collect_nccl_facts(assign_ranks([(lines[0], 3)]))[3].version == "2.14.3"
    assert collect_nccl_facts(assign_ranks([(lines[0], None)])) == {}
