"""What is waited for between two trials."""

from __future__ import annotations

import socket
import threading

import pytest
from hangbisect.base.command_words import port as port_of
from hangbisect.trials.resources import FreeResources, free_now, missing_resources, wait_until_free

TORCHRUN = ("torchrun", "--nproc_per_node=2")


@pytest.mark.parametrize(
    ("command", "environment", "port"),
    [
        ((*TORCHRUN, "--master_port=29501", "train.py"), {}, 29501),
        ((*TORCHRUN, "--master-port", "29502", "train.py"), {"MASTER_PORT": "1"}, 29502),
        (("accelerate", "launch", "--main_process_port", "29503", "x.py"), {}, 29503),
        ((*TORCHRUN, "train.py"), {"MASTER_PORT": "29504"}, 29504),
        ((*TORCHRUN, "train.py"), {"PET_MASTER_PORT": "29505", "MASTER_PORT": "1"}, 29505),
        ((*TORCHRUN, "--rdzv-endpoint=here:29506", "train.py"), {}, 29506),
        ((*TORCHRUN, "--rdzv_endpoint", "[::1]:29507", "train.py"), {}, 29507),
        ((*TORCHRUN, "--rdzv-endpoint=localhost:0", "train.py"), {}, None),
        (("accelerate", "launch", "--main-process-port=29508", "x.py"), {}, 29508),
        (("accelerate", "launch", "--num_processes=2", "x.py"), {}, 29500),
        (("deepspeed", "--num_gpus", "2", "x.py"), {}, 29500),
        (("srun", "-n2", "python", "x.py"), {"MASTER_PORT": "29509"}, 29509),
        (("python", "x.py"), {}, None),
        ((*TORCHRUN, "train.py"), {}, None),
        ((*TORCHRUN, "--master_port=0", "train.py"), {}, None),
        ((*TORCHRUN, "--master_port"), {}, None),
        ((), {}, None),
    ],
)
def test_the_port_that_ranks_meet_at_is_named_by_words_or_the_environment(
    command: tuple[str, ...], environment: dict[str, str], port: int | None
) -> None:
    assert port_of(command, environment) == port


def test_a_port_that_somebody_still_has_is_waited_for_and_told() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = wait_until_free(free_now(), TORCHRUN, {"MASTER_PORT": str(port)}, limit=0.3)
        assert said == f"port {port} is still in use"
    assert wait_until_free(free_now(), TORCHRUN, {"MASTER_PORT": str(port)}, limit=5.0) == ""


def test_memory_that_is_not_given_back_is_told() -> None:
    much = FreeResources(memory=1 << 60, gpus={})
    assert "of memory are not back" in wait_until_free(much, TORCHRUN, {}, limit=0.0)


@pytest.mark.parametrize(
    ("before", "now", "environ", "said"),
    [
        (2_000_000, 90_000_000, {}, ""),  # a driver's own, on a card that was idle
        (2_000_000, 900_000_000, {}, "GPU 1 has 858 MiB in use still"),
        (2_000_000, 900_000_000, {"CUDA_VISIBLE_DEVICES": "0"}, ""),
        (2_000_000, 900_000_000, {"CUDA_VISIBLE_DEVICES": ""}, ""),
        (
            2_000_000,
            900_000_000,
            {"CUDA_VISIBLE_DEVICES": "0, 1"},
            "GPU 1 has 858 MiB in use still",
        ),
        (2_000_000, 900_000_000, {"CUDA_VISIBLE_DEVICES": "GPU-ab"}, "GPU 1 has 858 MiB in use"),
        (40_000_000_000, 41_000_000_000, {}, "GPU 1 has 38 GiB in use still"),
    ],
)
def test_gpu_memory_that_is_not_given_back_is_told_of_the_gpus_that_a_trial_may_use(
    before: int, now: int, environ: dict[str, str], said: str
) -> None:
    told = missing_resources(
        FreeResources(None, {0: 0, 1: before}), FreeResources(None, {0: 0, 1: now}), environ
    )
    assert told.startswith(said)
    assert bool(told) == bool(said)


def test_who_is_told_to_stop_waits_no_longer() -> None:
    stopping = threading.Event()
    stopping.set()
    much = FreeResources(memory=1 << 60, gpus={})
    assert wait_until_free(much, TORCHRUN, {}, stopping, limit=100.0)
