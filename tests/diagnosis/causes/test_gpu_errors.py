"""What the driver reported of the GPUs of a job: whose they are, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.rank_facts import Gpu, GpuError, MachineFacts
from hangbisect.evidence.gpus.gpu_errors import parse_kernel_log
from hypothesis import given
from hypothesis import strategies as st

from ..made_up import gone, job, look, rank
from ..test_pending_operations import ITEM
from .scenes import TORCHRUN, Facts, Shows, causes_of
from .test_gpu import ASKS
from .test_nccl import WAITS

WORLD = 4
LINES: Mapping[str, str] = {
    "gpu-lost": "NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>', name=<unknown>, GPU is off it",
    "gpu-stopped": "NVRM: Xid (PCI:0000:03:00): 119, pid=1580, name=python3, Timeout waiting for",
    "gpu-memory-errors": "NVRM: Xid (PCI:0000:03:00): 48, pid=1234, name=python3, DBE (double bit)",
    "gpu-illegal-access": "NVRM: Xid (PCI:0000:03:00): 31, pid=1234, name=python3, Ch 00000008, M",
    "nvlink-error": "NVRM: Xid (PCI:0000:03:00): 74, pid=1234, name=python3, NVLink: fatal error",
}
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 24007, Fatal, Link 44 sourcetrack timeout"


def errors(*lines: str, at: float = 90.0) -> tuple[GpuError, ...]:
    return parse_kernel_log([f"3,1,{int(at * 1e6)},-;{line}" for line in lines])


def machine(*found: GpuError, known: bool = True, **of_third: Any) -> MachineFacts:
    """Four GPUs of four ranks, and a fifth one that is another job's."""
    gpus = tuple(
        Gpu(n, "NVIDIA H100", 1.0, 120.0, 700.0, pids=(100 + n,), bus=f"0000:0{n}:00.0")
        for n in range(WORLD)
    )
    gpus = (*gpus[:3], replace(gpus[3], **of_third))
    other = Gpu(4, "NVIDIA H100", 0.9, 300.0, 700.0, pids=(4711,), bus="0000:04:00.0")
    return MachineFacts(gpus=(*gpus, other) if known else (), gpu_errors=found)


def standing(on: MachineFacts, one: Any = WAITS) -> Facts:
    ranks = [rank(n, one, environment=TORCHRUN) for n in range(WORLD)]
    return job(world=WORLD, machine=on), ranks


def shows(name: str) -> Any:
    return lambda: standing(machine(*errors(LINES[name])))


SHOWS: Shows = {name: shows(name) for name in LINES}


@pytest.mark.parametrize("name", LINES)
def test_whose_gpu_it_is_is_said(name: str) -> None:
    cause = causes_of(SHOWS[name]())[name]
    assert cause.matched[0].startswith("GPU 3 (0000:03:00) of rank 3: Xid ")
    assert cause.matched[0].endswith(", 30.0 s ago") or "30 s ago" in cause.matched[0]
    assert cause.level == "seen"


AMDS_LINES: Mapping[str, str] = {
    "gpu-lost": "amdgpu 0000:03:00.0: amdgpu: device lost from bus!",
    "gpu-stopped": "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!. Source: 4",
    "gpu-memory-errors": "amdgpu 0000:03:00.0: 1 uncorrectable hardware errors detected in umc "
    "block",
    "gpu-illegal-access": "amdgpu 0000:03:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 "
    "ring:24 vmid:8 pasid:32777, for process python pid 103 thread python pid 103)",
    "nvlink-error": "amdgpu 0000:03:00.0: 1 uncorrectable hardware errors detected in xgmi_wafl "
    "block",
}


@pytest.mark.parametrize("name", AMDS_LINES)
def test_amds_driver_says_the_same_without_a_number(name: str) -> None:
    cause = causes_of(standing(machine(*errors(AMDS_LINES[name]))))[name]
    assert cause.matched[0].startswith("GPU 3 (0000:03:00) of rank 3: ")
    assert "Xid" not in cause.matched[0]
    assert cause.level == "seen"


def test_a_gpu_that_nvml_calls_lost_needs_no_line() -> None:
    on = machine(pids=(), state="lost", said="NVML says that it is lost (memory: GPU is lost)")
    cause = causes_of(standing(on))["gpu-lost"]
    assert cause.matched == (
        "GPU 3 (0000:03:00) of rank 3: NVML says that it is lost (memory: GPU is lost)",
    )


def test_a_lost_gpu_names_its_rank_although_nvml_no_longer_knows_its_processes() -> None:
    on = machine(*errors(LINES["gpu-lost"]), pids=())
    assert "of rank 3" in causes_of(standing(on))["gpu-lost"].matched[0]


@pytest.mark.parametrize("name", LINES)
def test_a_gpu_of_another_job_is_not_ours(name: str) -> None:
    line = LINES[name].replace("0000:03:00", "0000:04:00")
    assert not set(LINES) & set(causes_of(standing(machine(*errors(line)))))


def test_where_nothing_is_known_of_gpus_it_is_a_guess() -> None:
    on = machine(*errors(LINES["gpu-lost"]), known=False)
    cause = causes_of(standing(on))["gpu-lost"]
    assert cause.level == "guess"
    assert cause.matched[0].startswith("GPU 0000:03:00: Xid 79")


def test_without_the_kernels_log_it_is_a_guess_that_a_gpu_to_be_reset_has_stopped() -> None:
    on = machine(recovery="a reset of the GPU")
    cause = causes_of(standing(on))["gpu-stopped"]
    assert cause.level == "guess"
    assert cause.matched[0].endswith("of rank 3: the driver asks for a reset of the GPU")
    others = replace(on, gpus=tuple(replace(gpu, pids=(9,)) for gpu in on.gpus))
    assert "gpu-stopped" not in causes_of(standing(others))


@pytest.mark.parametrize(
    ("name", "of_third", "words"),
    [
        ("gpu-memory-errors", {"memory_errors": 2}, "GPU 3: 2 memory errors were not corrected"),
        ("nvlink-error", {"links_down": (2, 3)}, "GPU 3: NVLink 2, 3 is down"),
    ],
)
def test_what_nvml_alone_says_is_a_guess(name: str, of_third: Any, words: str) -> None:
    cause = causes_of(standing(machine(**of_third)))[name]
    assert (cause.level, cause.matched[0]) == ("guess", words)


def test_a_process_of_the_job_in_the_line_is_enough() -> None:
    line = LINES["gpu-illegal-access"].replace("pid=1234", "pid=102")
    cause = causes_of(standing(machine(*errors(line), known=False)))["gpu-illegal-access"]
    assert cause.level == "seen"
    assert "of rank 2" in cause.matched[0]


def test_an_error_of_a_switch_is_one_of_all_gpus() -> None:
    cause = causes_of(standing(machine(*errors(SWITCH))))["nvlink-error"]
    assert cause.matched[0].startswith("NVSwitch 0000:c4:00: SXid 24007, fatal: Link 44")
    harmless = SWITCH.replace("Fatal", "Non-fatal")
    assert "nvlink-error" not in causes_of(standing(machine(*errors(harmless))))


@pytest.mark.parametrize(("code", "text"), [(63, "Row Remapper: New row"), (92, "SBE rate")])
def test_what_memory_recovers_from_is_no_more_than_a_guess(code: int, text: str) -> None:
    line = f"NVRM: Xid (PCI:0000:03:00): {code}, pid=1234, name=python3, {text}"
    found = causes_of(standing(machine(*errors(line)))).get("gpu-memory-errors")
    assert found is None or found.level == "guess"


def test_an_error_of_a_link_that_is_not_fatal_is_no_more_than_a_guess() -> None:
    """NVIDIA's catalogue tells most of these to be ignored."""
    line = "NVRM: Xid (PCI:0000:03:00): 145, RLW_RXPIPE {} XC0 i0 Link 13 (0x0409a0c2 0x00000004)"
    found = causes_of(standing(machine(*errors(line.format("Nonfatal"))))).get("nvlink-error")
    assert found is None or found.level == "guess"
    assert (
        causes_of(standing(machine(*errors(line.format("Fatal")))))["nvlink-error"].level == "seen"
    )


def test_a_rank_that_waits_for_a_file_does_not_wait_for_a_gpu_that_a_program_misused() -> None:
    sleeps = look("wait_for_data train.py:12", "<module> train.py:30", call="clock_nanosleep")
    found = causes_of(standing(machine(*errors(LINES["gpu-memory-errors"])), sleeps))
    assert not set(LINES) & set(found)


@pytest.mark.parametrize(
    ("error", "is_cause"),
    [
        ("torch.AcceleratorError: CUDA error: unspecified launch failure", True),
        ("ValueError: too many values to unpack", False),
    ],
)
def test_a_crash_that_says_something_of_gpus(error: str, is_cause: bool) -> None:
    facts, ranks = standing(machine(*errors(LINES["gpu-lost"])))
    ranks = [*ranks[:3], gone(3, 1, error, left_at=95.0)]
    found = causes_of((replace(facts, ended="crash"), ranks))
    assert ("gpu-lost" in found) == is_cause


def test_a_rank_in_a_call_of_the_driver_waits_for_its_gpu() -> None:
    facts, ranks = standing(machine(*errors(LINES["gpu-lost"])))
    asks = replace(ASKS, state="D")
    ranks = [*ranks[:3], rank(3, asks, environment=TORCHRUN)]
    assert causes_of((facts, ranks))["gpu-lost"].level == "seen"


@given(st.sets(st.integers(0, WORLD - 1)))
def test_with_the_processes_of_half_of_the_gpus_missing(lost: set[int]) -> None:
    """Whoever NVML does not name: rank 3 is in it, or nobody."""
    on = machine(*errors(LINES["gpu-lost"]))
    gpus = tuple(replace(gpu, pids=()) if gpu.index in lost else gpu for gpu in on.gpus)
    facts = standing(replace(on, gpus=gpus), ITEM)
    cause = causes_of(facts)["gpu-lost"]
    assert "of rank 3" in cause.matched[0]
