"""Ends that people take for hangs."""

from __future__ import annotations

import pytest
from hangbisect.base.rank_facts import Collective, CollectiveLog

from ..made_up import job, look, rank
from .scenes import MAKES_GROUP, Facts, Shows, causes_of, ended, with_locals, with_native


def left_over() -> Facts:
    told = 'File "train.py", line 4\n  init_process_group("gloo", init_method="file:///nfs/store")'
    error = "RuntimeError: Gloo connectFullMesh failed with Connection refused"
    return ended(error, traceback=told)


SHOWS: Shows = {
    "meta-device": lambda: ended(
        "RuntimeError: Function MmBackward0 returned an invalid gradient at index 1 - expected "
        "device meta but got cuda:0"
    ),
    "port-in-use": lambda: ended(
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: "
        "address already in use"
    ),
    "same-gpu": lambda: ended(
        "DistBackendError: NCCL error. Last error: Duplicate GPU detected : rank 1 and rank 0 both "
        "on CUDA device a4000"
    ),
    "spawn-without-guard": lambda: ended(
        "RuntimeError: An attempt has been made to start a new process before the current process "
        "has finished its bootstrapping phase."
    ),
    "debug-detail": lambda: ended("", -11, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    "stale-rendezvous-file": left_over,
}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("meta-device", "RuntimeError: Expected all tensors to be on the same device, cuda:0, cpu"),
        ("port-in-use", "ConnectionRefusedError: [Errno 111] Connection refused"),
        ("stale-rendezvous-file", "RuntimeError: connectFullMesh failed: Connection refused"),
        ("spawn-without-guard", "RuntimeError: context has already been set"),
    ],
)
def test_another_error_is_another_cause(name: str, error: str) -> None:
    assert name not in causes_of(ended(error))


def test_what_was_only_logged_is_worth_less_than_the_error() -> None:
    said = "RuntimeError: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device a4000"
    sure = causes_of(ended(said))["same-gpu"].agreement
    assert causes_of(ended("", output=(said,)))["same-gpu"].agreement <= 0.8 < sure


def test_the_log_of_a_rank_that_is_gone_tells_of_its_store() -> None:
    made = Collective("", "init_process_group", 1, shape="file:///nfs/store")
    logs = (CollectiveLog("ring", (made,)),)
    found = causes_of(ended("RuntimeError: connectFullMesh: Connection refused", collectives=logs))
    assert found["stale-rendezvous-file"].avoid[0] == "rm /nfs/store"


def test_ranks_that_connect_to_the_dead_of_an_old_store_hang() -> None:
    told = with_locals(look(*MAKES_GROUP), "init_process_group", init_method="file:///nfs/store")
    one = with_native(told, "gloo::transport::tcp::Pair::waitUntilConnected")
    found = causes_of((job(), [rank(n, one) for n in (0, 1)]))
    assert found["stale-rendezvous-file"].avoid[0] == "rm /nfs/store"
    other = with_native(look(*MAKES_GROUP), "gloo::transport::tcp::Pair::waitUntilConnected")
    assert "stale-rendezvous-file" not in causes_of((job(), [rank(n, other) for n in (0, 1)]))


def test_a_segmentation_fault_alone_does_not_accuse_the_debugging() -> None:
    assert "debug-detail" not in causes_of(ended("", -11))
    info = ended("", -11, environment={"TORCH_DISTRIBUTED_DEBUG": "INFO"})
    assert "debug-detail" not in causes_of(info)
