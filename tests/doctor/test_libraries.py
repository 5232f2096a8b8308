"""What is read of drivers and libraries, and what is preloaded."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hangbisect.doctor.libraries import compare_versions, judge_preloads
from hangbisect.evidence.installed_versions import parse_driver_version, read_versions

from .made_up import levels, said


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (  # the closed driver's
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC\n"
            "GCC version:  gcc version 11.4.0\n",
            "535.183.01",
        ),
        (  # the open driver's
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build\n",
            "570.158.01",
        ),
        ("", ""),
        ("garbage", ""),
    ],
)
def test_the_driver_tells_its_version(text: str, version: str) -> None:
    assert parse_driver_version(text) == version


def test_ours_are_read_without_importing_torch() -> None:
    found = read_versions()
    assert found["Python"]
    assert all(isinstance(version, str) for version in found.values())


@pytest.mark.parametrize(
    ("by_host", "expected"),
    [
        ({"n01": {"torch": "2.11"}, "n02": {"torch": "2.11"}}, ["ok"]),
        ({"n01": {"torch": "2.11"}, "n02": {"torch": "2.10"}}, ["problem"]),
        ({"n01": {"Python": "3.12.3"}, "n02": {"Python": "3.11.9"}}, ["warning"]),
        ({"n01": {"torch": "2.11"}}, ["ok"]),
    ],
)
def test_what_differs_between_nodes(
    by_host: Mapping[str, Mapping[str, str]], expected: list[str]
) -> None:
    assert [one.level for one in compare_versions(by_host)] == expected


def test_of_many_nodes_some_are_named() -> None:
    by_host = {f"n{n:02}": {"NCCL": "2.28.9" if n else "2.27.5"} for n in range(8)}
    (found,) = compare_versions(by_host)
    assert found.value == "NCCL: 2.28.9 on n01, n02, n03 and 4 more, 2.27.5 on n00"


@pytest.mark.parametrize(
    ("preloaded", "level"),
    [
        ((), "ok"),
        (("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",), "ok"),
        (("/usr/local/vgpu/libvgpu.so",), "warning"),
        (("libtcmalloc.so.4", "/opt/proxy/libsocks.so"), "warning"),
    ],
)
def test_a_library_in_the_place_of_others_is_said(preloaded: tuple[str, ...], level: str) -> None:
    assert levels(judge_preloads, preloaded) == [level]
    if level == "warning":
        ((_, value),) = said(judge_preloads, preloaded)
        assert "libtcmalloc" not in value
