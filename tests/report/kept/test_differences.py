"""What differs between ranks, and only that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hangbisect.base.events import decode
from hangbisect.report.run_reader.rank_differences import RankDifference, find_differences
from hangbisect.report.run_reader.run import RecordedRun
from hangbisect.report.run_reader.run_files import JobEnvironment

from .made_up import event, hello


def run(variables: Mapping[int, Mapping[str, str]], **more: Any) -> RecordedRun:
    ranks = {str(rank): them for rank, them in variables.items()}
    events = tuple(hello(1.0, rank) for rank in variables)
    environment = JobEnvironment({"torch": "2.4"}, ranks=ranks)
    told = tuple(map(decode, more.pop("events", events)))
    return RecordedRun(Path("run"), events=told, environment=environment, **more)


def test_what_is_the_same_on_all_ranks_is_not_named() -> None:
    assert find_differences(run({0: {"NCCL_DEBUG": "INFO"}, 1: {"NCCL_DEBUG": "INFO"}})) == ()


def test_ranks_are_grouped_by_value_and_a_missing_variable_is_one() -> None:
    names = {rank: {"NCCL_SOCKET_IFNAME": "eth0"} for rank in (0, 1, 3)}
    (found,) = find_differences(run({**names, 2: {}}))
    values = {"eth0": (0, 1, 3), "": (2,)}
    assert found == RankDifference("environment", "NCCL_SOCKET_IFNAME", values)
    assert [*found.values] == ["eth0", ""]  # most ranks first


def test_that_each_rank_has_its_own_number_is_no_difference() -> None:
    def own(rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "CUDA_VISIBLE_DEVICES": str(rank),
            "TORCHELASTIC_ERROR_FILE": f"/tmp/0a1/attempt_0/{rank}/error.json",
        }

    assert find_differences(run({rank: own(rank) for rank in range(12)})) == ()


def test_a_number_that_is_not_the_ranks_own_is_a_difference() -> None:
    wrong = {0: {"CUDA_VISIBLE_DEVICES": "0"}, 1: {"CUDA_VISIBLE_DEVICES": "0,1"}}
    assert [one.name for one in find_differences(run(wrong))] == ["CUDA_VISIBLE_DEVICES"]
    swapped = {0: {"RANK": "1"}, 1: {"RANK": "0"}}
    assert [one.name for one in find_differences(run(swapped))] == ["RANK"]


def test_hosts_pythons_and_versions_are_compared() -> None:
    events = (
        hello(1.0, 0, host="n01"),
        hello(1.0, 1, host="n02", python="3.12.1"),
        event(2.0, "import", 0, module="torch", seconds=1.0, version="2.4"),
        event(2.0, "import", 1, module="torch", seconds=1.0, version="2.5"),
    )
    found = find_differences(run({0: {}, 1: {}}, events=events))
    assert [(one.topic, one.name, dict(one.values)) for one in found] == [
        ("host", "host", {"n01": (0,), "n02": (1,)}),
        ("versions", "torch", {"2.4": (0,), "2.5": (1,)}),
        ("python", "python", {"3.11.7": (0,), "3.12.1": (1,)}),
    ]


def test_versions_of_other_nodes_are_compared() -> None:
    environment = JobEnvironment({"torch": "2.5"}, ranks={"1": {}})
    node = RecordedRun(Path("node-1"), events=(decode(hello(1.0, 1)),), environment=environment)
    found = find_differences(run({0: {}}, nodes=(node,)))
    assert [(one.name, dict(one.values)) for one in found] == [
        ("torch", {"2.4": (0,), "2.5": (1,)})
    ]


def test_kinds_of_gpus_are_compared() -> None:
    cards = enumerate([("H100", [100]), ("A100", [101])])
    gpus: list[object] = [{"index": n, "name": name, "pids": pids} for n, (name, pids) in cards]
    gpus += [{"index": 2, "pids": 3}, None]
    ranks = [{"rank": 0, "pid": 100}, {"rank": 1, "pid": 101}, {"rank": "2"}, 7]
    evidence = {"ranks": ranks, "machine": {"gpus": gpus}}
    (one,) = find_differences(run({}, evidence=evidence))
    assert (one.topic, one.values) == ("gpu", {"H100": (0,), "A100": (1,)})
