"""What is waited for between two trials."""

from __future__ import annotations

import socket
import threading

import pytest
from hangbisect.trials.between import Free, free_now, named_port, wait_until_free

TORCHRUN = ("torchrun", "--nproc_per_node=2")


@pytest.mark.parametrize(
    ("command", "environment", "port"),
    [
        ((*TORCHRUN, "--master_port=29501", "train.py"), {}, 29501),
        ((*TORCHRUN, "--master-port", "29502", "train.py"), {"MASTER_PORT": "1"}, 29502),
        (("accelerate", "launch", "--main_process_port", "29503", "x.py"), {}, 29503),
        ((*TORCHRUN, "train.py"), {"MASTER_PORT": "29504"}, 29504),
        ((*TORCHRUN, "train.py"), {}, None),
        ((*TORCHRUN, "--master_port=0", "train.py"), {}, None),
        ((*TORCHRUN, "--master_port"), {}, None),
        ((), {}, None),
    ],
)
def test_the_port_that_ranks_meet_at_is_named_by_words_or_the_environment(
    command: tuple[str, ...], environment: dict[str, str], port: int | None
) -> None:
    assert named_port(command, environment) == port


def test_a_port_that_somebody_still_has_is_waited_for_and_told() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = wait_until_free(free_now(), TORCHRUN, {"MASTER_PORT": str(port)}, limit=0.3)
        assert said == f"port {port} is still in use"
    assert wait_until_free(free_now(), TORCHRUN, {"MASTER_PORT": str(port)}, limit=5.0) == ""


def test_memory_that_is_not_given_back_is_told() -> None:
    much = Free(memory=1 << 60, gpus={})
    assert "of memory are not back" in wait_until_free(much, TORCHRUN, {}, limit=0.0)


def test_who_is_told_to_stop_waits_no_longer() -> None:
    stopping = threading.Event()
    stopping.set()
    much = Free(memory=1 << 60, gpus={})
    assert wait_until_free(much, TORCHRUN, {}, stopping, limit=100.0)
