"""NCCL, from native frames as public stacks show them, and what NVML says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import Collective, CollectiveLog, Gpu, MachineFacts

from ..made_up import job, look, rank
from .scenes import TORCHRUN, Facts, Shows, causes_of, tcp, with_native

# pytorch/pytorch#52916: the constructor of DDP, whose first collective makes the communicator.
DDP = look(
    "_verify_param_shape_across_processes SP/torch/distributed/utils.py:288",
    "DistributedDataParallel.__init__ SP/torch/nn/parallel/distributed.py:889",
    "DDPStrategy._setup_model SP/pytorch_lightning/strategies/ddp.py:190",
    "Trainer.fit SP/pytorch_lightning/trainer/trainer.py:584",
    "<module> train.py:30",
    call="poll",
)
INIT = with_native(
    DDP,
    "__GI___poll",
    "ncclSocketAccept(ncclSocket*, ncclSocket*)",
    "bootstrapInit(int, ncclBootstrapHandle**, ncclComm*, ncclComm*)",
    "ncclCommInitRankConfig",
    "c10d::NCCLComm::create(int, int, ncclUniqueId, signed char, ncclConfig_v21700&)",
    "c10d::ProcessGroupNCCL::initNCCLComm(std::string const&, c10::Device&, c10d::OpType)",
)
# NVIDIA/nccl#901 and #117: the operation is on the GPU, and the rank waits for the stream.
WAITS = with_native(
    look(
        "all_reduce SP/torch/distributed/distributed_c10d.py:3252",
        "wrapper SP/torch/distributed/c10d_logger.py:83",
        "<module> train.py:30",
        call="sched_yield",
        state="R",
    ),
    "cuStreamSynchronize",
    "cudaStreamSynchronize",
    "c10d::ProcessGroupNCCL::WorkNCCL::synchronizeInternal(std::chrono::duration<long>)",
)
FIRST = (CollectiveLog("ring", (Collective("0", "all_reduce", 1, "train.py:30", done=False),)),)


def gpus(busy: float, power: float) -> MachineFacts:
    return MachineFacts(
        gpus=tuple(Gpu(n, "NVIDIA RTX 5880", busy, power, 285.0, pids=(100 + n,)) for n in (0, 1)),
        interfaces=("lo", "eth0", "docker0"),
    )


def both(one: Look, machine: MachineFacts, **more: Any) -> Facts:
    environment = {**TORCHRUN, **more.pop("environment", {})}
    ranks = [rank(n, one, environment=environment, **more) for n in (0, 1)]
    return job(machine=machine), ranks


def wrong_interface() -> Facts:
    asked = tcp("172.17.0.1:41234", "SYN_SENT")
    return both(replace(INIT, sockets=(asked,)), gpus(0.0, 30))


def nccl_init() -> Facts:
    return both(INIT, gpus(0.0, 30))


def nccl_first_collective() -> Facts:
    return both(WAITS, gpus(1.0, 75), collectives=FIRST)


def barrier_guessed_device() -> Facts:
    said = (
        "[rank1]:[W ProcessGroupNCCL.cpp:3900] using GPU 0 to perform barrier as devices used by "
        "this process are currently unknown."
    )
    one = look(
        "barrier SP/torch/distributed/distributed_c10d.py:5350",
        "wrapper SP/torch/distributed/c10d_logger.py:83",
        "<module> train.py:30",
        call="futex",
    )
    return both(one, MachineFacts(), output=(said,))


SHOWS: Shows = {
    "wrong-interface": wrong_interface,
    "nccl-init": nccl_init,
    "nccl-first-collective": nccl_first_collective,
    "barrier-guessed-device": barrier_guessed_device,
}


@pytest.mark.parametrize(
    ("busy", "power", "why_not"),
    [
        (1.0, 280, "they work: at full power"),
        (0.4, 75, "they are not busy all the time"),
        (0.0, 30, "they do nothing"),
    ],
)
def test_gpus_that_do_not_spin_say_nothing_of_p2p(busy: float, power: float, why_not: str) -> None:
    assert "nccl-first-collective" not in causes_of(both(WAITS, gpus(busy, power))), why_not


def test_p2p_that_is_off_is_not_the_cause() -> None:
    off = both(WAITS, gpus(1.0, 75), environment={"NCCL_P2P_DISABLE": "1"})
    assert "nccl-first-collective" not in causes_of(off)


def test_ranks_in_different_collectives_are_no_matter_of_p2p() -> None:
    facts, ranks = nccl_first_collective()
    other = (CollectiveLog("ring", (Collective("0", "broadcast", 1, "train.py:9"),)),)
    mixed = [ranks[0], replace(ranks[1], collectives=other)]
    assert "nccl-first-collective" not in causes_of((facts, mixed))


def test_p2p_stays_a_suspicion_while_collectives_worked_before() -> None:
    later = (CollectiveLog("ring", (Collective("0", "all_reduce", 900, done=False),)),)
    found = causes_of(both(WAITS, gpus(1.0, 75), collectives=later))
    assert found["nccl-first-collective"].agreement < 0.7


def test_gloo_makes_no_communicator_of_nccl() -> None:
    gloo = with_native(DDP, "gloo::transport::tcp::UnboundBuffer::waitRecv", "gloo::allreduce")
    assert not set(SHOWS) & set(causes_of(both(gloo, gpus(0.0, 30))))
