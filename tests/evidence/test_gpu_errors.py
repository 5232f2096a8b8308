"""What the driver wrote to the kernel's log of its GPUs, in records as /dev/kmsg gives them.

The lines have the form of NVIDIA/open-gpu-kernel-modules#446 (119), #1150 (45, 149), of
NVIDIA/NVSentinel#155 and leptonai/gpud#1209 (79, and without a number), of leptonai/gpud#1174 (94,
145) and NVIDIA/nvtrust#124 (SXid), and 154 that of #1045 and #1284; what each number means is in
NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, up to 172). Places
and processes are made up.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from hangbisect.evidence.gpus.gpu_errors import (
    KERNEL_LOG,
    describe_gpu_error,
    parse_kernel_log,
    read_gpu_errors,
)
from hypothesis import given
from hypothesis import strategies as st

OFF = "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def record(text: str, at: float = 100.0, number: int = 1) -> str:
    return f"3,{number},{int(at * 1e6)},-;{text}"


@pytest.mark.parametrize(
    ("line", "bus", "code", "kind", "pid"),
    [
        (OFF, "0000:65:00", 79, "lost", None),
        (
            "NVRM: Xid (PCI:0000:0A:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. "
            "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2e_8a000000",
            "0000:0a:00",
            31,
            "access",
            4711,
        ),
        (
            "NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=1234, name=python3, Contained ECC error",
            "0000:65:00",
            94,
            "memory",
            1234,
        ),
        (
            "NVRM: Xid (PCI:0000:65:00): 119, pid=1580, name=python3, Timeout waiting for RPC from "
            "GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).",
            "0000:65:00",
            119,
            "stopped",
            1580,
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)",
            "0018:01:00",
            145,
            "link",
            None,
        ),
        ("NVRM: Xid (0000:03:00): 13, 0001 00000000 0000a097", "0000:03:00", 13, "access", None),
        ("NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.", "0000:b3:00", 79, "lost", None),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 24007, Fatal, Link 44 sourcetrack timeout",
            "0000:04:00",
            24007,
            "link",
            None,
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link "
            "DLREQ interrupt",
            "0000:04:00",
            22013,
            "other",
            None,
        ),
        ("NVRM: Xid (PCI:0000:65:00): 999, something new", "0000:65:00", 999, "other", None),
    ],
)
def test_what_a_line_says(line: str, bus: str, code: int, kind: str, pid: int | None) -> None:
    (one,) = parse_kernel_log([record(line)])
    assert (one.bus, one.code, one.kind, one.pid) == (bus, code, kind, pid)
    assert one.at == 100.0
    assert one.meaning
    assert one.of_switch == ("SXid" in line)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01",
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Data {0x0000002b, 0x0000002b}",
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44",
        "usb 1-1: new device, Xid of nobody",
    ],
)
def test_what_is_no_error_of_a_gpu(line: str) -> None:
    assert parse_kernel_log([record(line)]) == ()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((39, "access"), (72, "access"), (126, "access"), (135, "access")),  # copy engines
        *((80, "access"), (137, "access")),  # corrupted data; a peer's memory, over NVLink
        *((121, "other"), (93, "other"), (106, "other"), (66, "other")),  # corrected, or no harm
        *((140, "memory"), (156, "memory"), (160, "memory"), (171, "memory"), (172, "memory")),
        *((144, "link"), (150, "link"), (155, "link")),
        *((143, "lost"), (158, "stopped"), (167, "stopped"), (169, "stopped")),
        *((162, "other"), (165, "other")),  # smoothing of power
    ],
)
def test_numbers_of_the_newest_catalogue(code: int, kind: str) -> None:
    (one,) = parse_kernel_log([record(f"NVRM: Xid (PCI:0000:65:00): {code}, pid=1, name=x, y")])
    assert one.kind == kind
    assert one.meaning != "y"


@pytest.mark.parametrize(
    ("action", "kind", "meaning"),
    [
        ("0x1 (GPU Reset Required)", "stopped", "the driver asks for: GPU Reset Required"),
        ("0x1 (PF FLR)", "stopped", "the driver asks for: PF FLR"),
        ("0x2 (Node Reboot Required)", "stopped", "the driver asks for: Node Reboot Required"),
        ("0x3 (Drain P2P)", "link", "the driver asks for: Drain P2P"),
        ("0x4 (Drain and Reset)", "other", "the driver asks for: Drain and Reset"),
        ("0x0 (None)", "other", "the driver asks for: None"),
    ],
)
def test_what_the_driver_asks_for_to_recover_a_gpu(action: str, kind: str, meaning: str) -> None:
    line = (
        f"NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to {action}"
    )
    (one,) = parse_kernel_log([record(line)])
    assert (one.kind, one.meaning) == (kind, meaning)


# AMD's driver: a training that hung on MI300X (ROCm/legacy-rocm-build#4021), RCCL's tests on more
# than two GPUs (amd-gfx, "Queue preemption failed"), a page fault as the kernel's documentation has
# it (Documentation/gpu/amdgpu/debugging.rst), errors of memory and links (amdgpu_ras.c).
@pytest.mark.parametrize(
    ("line", "bus", "kind", "meaning", "pid"),
    [
        (
            "amdgpu 0000:dd:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) "
            "detected!",
            "0000:dd:00",
            "stopped",
            "uncorrectable hardware error",
            None,
        ),
        (
            "amdgpu 0000:3d:00.0: amdgpu: The cp might be in an unrecoverable state due to an "
            "unsuccessful queues preemption",
            "0000:3d:00",
            "stopped",
            "the GPU's scheduler does not answer",
            None,
        ),
        (
            "amdgpu 0048:0f:00.0: amdgpu: Queue preemption failed for queue with doorbell_id: 80",
            "0048:0f:00",
            "stopped",
            "the GPU's scheduler does not answer",
            None,
        ),
        (
            "amdgpu 0048:0f:00.0: amdgpu: GPU reset begin!. Source: 4",
            "0048:0f:00",
            "stopped",
            "the driver resets the GPU",
            None,
        ),
        (
            "amdgpu 0000:03:00.0: amdgpu: device lost from bus!",
            "0000:03:00",
            "lost",
            "GPU has fallen off the bus",
            None,
        ),
        (
            "amdgpu 0000:2b:00.0: amdgpu: [mmhub0] no-retry page fault (src_id:0 ring:157 vmid:8 "
            "pasid:32777, for process python pid 4381 thread python pid 4381)",
            "0000:2b:00",
            "access",
            "GPU memory page fault",
            4381,
        ),
        (
            "amdgpu 0000:0b:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
            "0000:0b:00",
            "memory",
            "errors of its memory that were not corrected",
            None,
        ),
        (
            "amdgpu 0000:0b:00.0: socket: 0, die: 1, 3 new uncorrectable hardware errors detected "
            "in xgmi_wafl block",
            "0000:0b:00",
            "link",
            "errors of its links to other GPUs (XGMI)",
            None,
        ),
        (
            "amdgpu 0000:01:00.0: [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 "
            "timeout, signaled seq=3, emitted seq=4",
            "0000:01:00",
            "stopped",
            "a queue of the GPU has not advanced in time",
            None,
        ),
    ],
)
def test_what_a_line_of_amds_driver_says(
    line: str, bus: str, kind: str, meaning: str, pid: int | None
) -> None:
    (found,) = parse_kernel_log([record(line)])
    assert (found.bus, found.kind, found.meaning, found.pid) == (bus, kind, meaning, pid)
    assert describe_gpu_error(found) == f"GPU {bus}: {meaning}"


@pytest.mark.parametrize(
    "line",
    [
        "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c3:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c3:00.0: amdgpu: 7 correctable hardware errors detected in umc block",
        "amdgpu 0000:c3:00.0: amdgpu: SRAM ECC is active.",
        "amdgpu: [drm] ring comp_1.1.0 uses VM inv eng 5 on hub 0",
        "amdgpu 0000:c3:00.0: amdgpu: GPU reset(1) succeeded!",
    ],
)
def test_what_of_amds_driver_is_no_error(line: str) -> None:
    assert parse_kernel_log([record(line)]) == ()


def test_what_was_before_the_job_is_left_out() -> None:
    """The kernel's clock may be some seconds behind or ahead."""
    lines = [record(OFF, 100.0), record(OFF.replace("65", "66"), 5000.0)]
    assert [one.bus for one in parse_kernel_log(lines, 5010.0)] == ["0000:66:00"]
    assert parse_kernel_log(lines, 9000.0) == ()


def test_what_a_device_repeats_is_told_once() -> None:
    lines = [record(OFF, 100.0 + n, n) for n in range(5000)]
    assert [one.at for one in parse_kernel_log(lines)] == [100.0]


def test_a_log_is_read_to_its_end(tmp_path: Path) -> None:
    """A file that was made: continuation lines and others' records are passed over."""
    log = tmp_path / "kmsg"
    others = [
        record(f"eth{n}: link up", n) + f"\n SUBSYSTEM=net\n DEVICE=+net:eth{n}" for n in range(900)
    ]
    log.write_text("\n".join([*others, record(OFF, 7.0), ""]))
    found, missing = read_gpu_errors(path=str(log))
    assert [one.code for one in found] == [79]
    assert missing == ""


def test_who_may_not_read_it_is_told(tmp_path: Path) -> None:
    found, missing = read_gpu_errors(path=str(tmp_path / "none"))
    assert found == ()
    assert missing == (
        "The kernel's log could not be read (No such file or directory): errors of GPUs (Xid) are "
        "not seen."
    )


def test_a_log_that_never_ends_costs_the_limit() -> None:
    began = time.monotonic()
    assert read_gpu_errors(path="/dev/zero", limit=0.2)[0] == ()
    assert time.monotonic() - began < 30.0


def test_nobody_is_waited_for(tmp_path: Path) -> None:
    """A FIFO to which nobody writes, as a log to which nothing comes."""
    os.mkfifo(tmp_path / "kmsg")
    assert read_gpu_errors(path=str(tmp_path / "kmsg"))[0] == ()


@pytest.mark.skipif(not os.path.exists(KERNEL_LOG), reason="there is no /dev/kmsg here")
def test_the_kernels_own_log_is_read_or_said_not_to_be() -> None:
    assert stat.S_ISCHR(os.stat(KERNEL_LOG).st_mode)
    found, missing = read_gpu_errors(time.monotonic())
    assert found == ()
    assert missing == "" or "could not be read" in missing


@given(st.text(max_size=60), st.integers(0, len(OFF)), st.integers(0, len(OFF)))
def test_garbage_is_no_harm(text: str, start: int, end: int) -> None:
    parse_kernel_log([text, record(text), record(OFF[:start] + text + OFF[end:])], 5.0)
