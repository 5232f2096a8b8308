"""The IOMMU and ACS: what sysfs and PCI's configuration space say."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hangbisect.doctor import devices
from hangbisect.doctor.devices import Between, acs_control
from hypothesis import given
from hypothesis import strategies as st

from .made_up import levels, setting


def configuration(*capabilities: tuple[int, bytes]) -> bytes:
    """Return a configuration space with these extended capabilities, (id, what follows)."""
    data, at = bytearray(4096), 0x100
    for number, (kind, body) in enumerate(capabilities):
        following = at + 0x40 if number + 1 < len(capabilities) else 0
        struct.pack_into("<I", data, at, kind | 1 << 16 | following << 20)
        data[at + 4 : at + 4 + len(body)] = body
        at += 0x40
    return bytes(data)


def test_acs_is_found_among_the_capabilities() -> None:
    acs = (0x0D, struct.pack("<HH", 0x1F, 0x1D))
    assert acs_control(configuration((1, b""), acs, (2, b""))) == 0x1D
    assert acs_control(configuration((1, b""), (2, b""))) is None
    assert acs_control(configuration(acs)[:256]) is None
    assert acs_control(b"") is None


@given(st.binary(max_size=600) | st.binary(min_size=4096, max_size=4096))
def test_any_bytes_are_taken_for_a_configuration(data: bytes) -> None:
    acs_control(data)


@given(st.integers(0, 0xFFC).map(lambda at: at & ~3))
def test_capabilities_that_go_round_in_a_circle_end(at: int) -> None:
    data = bytearray(4096)
    struct.pack_into("<I", data, 0x100, 1 | at << 20)
    assert acs_control(bytes(data)) in (None, 0)


def test_iommu_and_acs_matter_to_several_gpus_of_a_real_machine() -> None:
    bad = Between(2, iommu=("DMA-FQ",), redirecting=("0000:00:01.0",), unread=1)
    assert levels(devices.iommu, bad) == levels(devices.acs, bad) == ["warning"]
    for harmless in (
        replace(bad, gpus=1),
        replace(bad, virtual=True),
        Between(2, iommu=("identity",)),
        Between(2),
    ):
        assert levels(devices.iommu, harmless) == levels(devices.acs, harmless) == ["ok"]
    assert levels(devices.acs, Between(2, unread=3)) == ["unknown"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Between(8, nodes=2, gpu_nodes=(0, 1), core_nodes=(0, 1), balances=True), "warning"),
        (Between(8, nodes=2, gpu_nodes=(0, 1), core_nodes=(0,)), "warning"),
        (Between(8, nodes=2, gpu_nodes=(0, 1), core_nodes=(0, 1)), "ok"),
        (Between(4, nodes=2, gpu_nodes=(1,), core_nodes=(1,)), "ok"),
        (Between(8, nodes=1, gpu_nodes=(0,), core_nodes=(0,), balances=True), "ok"),
        (Between(8, nodes=2, core_nodes=(0,)), "ok"),  # a machine that does not say where they are
        (Between(1), "ok"),
    ],
)
def test_memory_and_cores_are_to_be_near_the_gpus(facts: Between, expected: str) -> None:
    assert levels(devices.numa, facts) == [expected]


def test_both_that_is_amiss_is_said() -> None:
    facts = Between(8, nodes=2, gpu_nodes=(0, 1), core_nodes=(0,), balances=True)
    first, second = (finding.value for finding in devices.numa(setting(), facts))
    assert "/proc/sys/kernel/numa_balancing" in first
    assert second.startswith("no core of NUMA node 1 may be used")
