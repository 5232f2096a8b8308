"""GPUs: what NVML says of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hangbisect.base.rank_facts import Gpu
from hangbisect.doctor import devices
from hangbisect.doctor.devices import Devices, parse_peers
from hangbisect.doctor.examination import CheckedProcess
from hangbisect.evidence.gpus.gpu_errors import parse_kernel_log
from hangbisect.evidence.machine import NO_DRIVER as NO_DRIVER_HERE
from hypothesis import given
from hypothesis import strategies as st

from .made_up import levels, said, setting

GIB = 1 << 30
TWO = Devices(
    tuple(Gpu(i, "H100", memory_used=0, memory_total=80 * GIB) for i in range(2)), pairs=1
)
NO_DRIVER = Devices(missing=NO_DRIVER_HERE)


def test_pairs_without_direct_access() -> None:
    text = json.dumps({"pairs": [[0, 1, 0], [0, 2, 3], [1, 2, None]]})
    apart, pairs = parse_peers(text)
    assert [(a, b) for a, b, _ in apart] == [(0, 2)]
    assert pairs == 2


@given(st.text() | st.binary())
def test_any_text_is_taken_for_peers(text: str | bytes) -> None:
    parse_peers(text)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists))
def test_any_json_is_taken_for_peers(data: object) -> None:
    parse_peers(json.dumps(data))
    parse_peers(json.dumps({"pairs": data}))


@pytest.mark.parametrize(
    ("value", "visible", "wrong"),
    [
        (None, ("0", "1"), None),
        ("1", ("1",), None),
        ("1, 0", ("1", "0"), None),
        ("0,5,1", ("0",), "5"),
        ("-1", (), None),
        ("", (), None),
        ("GPU-8932f937", ("GPU-8932f937",), None),
        ("cuda:0", (), "cuda:0"),
    ],
)
def test_what_cuda_visible_devices_leaves(
    value: str | None, visible: tuple[str, ...], wrong: str | None
) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert TWO.visible(environ) == visible
    assert TWO.no_such(environ) == wrong


def test_what_the_driver_reported_of_a_gpu_is_said_unless_a_program_did_it() -> None:
    text = "3,1,4000000,-;NVRM: Xid (PCI:0000:3b:00): {}, pid=1, name=python3, x"
    errors = parse_kernel_log([text.format(code) for code in (79, 31, 45)])
    found = said(devices.count, replace(TWO, errors=errors, now=94.0))
    assert found == [
        ("warning", "GPU 0000:3b:00: Xid 79, GPU has fallen off the bus, 90 s ago"),
        ("ok", "2 x H100"),
    ]


def test_how_many_there_are() -> None:
    assert said(devices.count, TWO) == [("ok", "2 x H100")]
    assert levels(devices.count, NO_DRIVER) == ["ok"]
    silent = "The NVIDIA driver gave no answer in time: it may itself be what hangs."
    assert levels(devices.count, Devices(missing=silent)) == ["problem"]
    assert levels(devices.count, Devices(missing="nvidia-ml-py is not installed")) == ["unknown"]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (Gpu(1, "", state="lost", said="NVML says that it is lost", bus="0000:3b:00.0"), "problem"),
        (Gpu(1, "H100", compute_mode="prohibited"), "problem"),
        (Gpu(1, "H100", links_down=(2, 3)), "warning"),
        (Gpu(1, "H100", pcie_width=8, pcie_width_most=16), "warning"),
        (Gpu(1, "H100", fabric="in progress"), "problem"),
        (Gpu(1, "H100", slowed_by=("too hot",)), "warning"),
        (Gpu(1, "H100", recovery="a reset of the GPU"), "problem"),
    ],
)
def test_one_in_trouble_is_named(gpu: Gpu, expected: str) -> None:
    (level, words), (last, _) = said(devices.count, replace(TWO, gpus=(TWO.gpus[0], gpu)))
    assert (level, last) == (expected, "ok")
    assert "GPU 1" in words


def test_without_persistence_nothing_is_amiss() -> None:
    whole = Gpu(1, "H100", pcie_width=16, pcie_width_most=16, persistence=False, driver="570.1")
    assert said(devices.count, replace(TWO, gpus=(whole,))) == [("ok", "1 x H100, driver 570.1")]


def test_who_uses_them_already() -> None:
    user = CheckedProcess(4711, "python", ("python", "old.py"), 9000.0, uid=1000)
    busy = replace(TWO.gpus[1], memory_used=70 * GIB, pids=(4711,))
    facts = replace(TWO, gpus=(TWO.gpus[0], busy), users=(user,), uid=1000)
    ((level, value),) = said(devices.in_use, facts)
    assert level == "warning"
    assert "GPU 1: 70 GiB of 80 GiB in use: python (4711" in value
    (found,) = devices.in_use(setting(), facts)
    assert found.next.startswith("kill 4711")
    (found,) = devices.in_use(setting(), replace(facts, uid=1))
    assert "kill" not in found.next
    assert levels(devices.in_use, TWO) == levels(devices.in_use, NO_DRIVER) == ["ok"]


@pytest.mark.parametrize(
    ("mode", "name", "expected"),
    [
        ("exclusive process", "python", ["problem", "ok"]),
        ("exclusive process", "nvidia-cuda-mps-server"[:15], ["ok"]),
        ("default", "python", ["ok"]),
    ],
)
def test_a_gpu_for_one_process_at_a_time_that_has_one(
    mode: str, name: str, expected: list[str]
) -> None:
    taken = replace(TWO.gpus[1], compute_mode=mode, pids=(4711,))
    facts = replace(TWO, gpus=(TWO.gpus[0], taken), users=(CheckedProcess(4711, name),))
    assert levels(devices.count, facts) == expected
    assert levels(devices.count, facts, setting(pids=(4711,))) == ["ok"]  # it is the job's own


def test_direct_access() -> None:
    (amds, _) = parse_peers(json.dumps({"pairs": [[0, 1, 100]]}))
    ((level, value),) = said(devices.peers, replace(TWO, apart=amds))
    assert (level, "neither XGMI nor" in value) == ("ok", True)
    assert levels(devices.peers, TWO) == ["ok"]
    assert levels(devices.peers, replace(TWO, pairs=0)) == ["unknown"]
    (apart, _) = parse_peers(json.dumps({"pairs": [[0, 1, 1]]}))
    assert levels(devices.peers, replace(TWO, apart=apart)) == ["ok"]
    (off, _) = parse_peers(json.dumps({"pairs": [[0, 1, 4]]}))
    assert levels(devices.peers, replace(TWO, apart=off)) == ["warning"]
