"""Ports of InfiniBand and RoCE, and whether they reach the GPUs' memory: what sysfs says.

The files have the form of Documentation/ABI/stable/sysfs-class-infiniband of the kernel; names and
addresses are made up.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.doctor import infiniband
from hangbisect.doctor.infiniband import Fabric, Port, read_fabric

from .made_up import levels, said, setting

UP = Port("mlx5_0", 1, "ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)", has_address=True)
NO_ADDRESS = "0000:0000:0000:0000:0000:0000:0000:0000"


def write_port(root: Path, card: str, number: int, state: str, **more: str) -> None:
    folder = root / card / "ports" / str(number)
    (folder / "gids").mkdir(parents=True)
    (folder / "state").write_text(f"{state}\n")
    (folder / "link_layer").write_text(more.get("layer", "InfiniBand") + "\n")
    (folder / "rate").write_text(more.get("rate", "400 Gb/sec (4X NDR)") + "\n")
    for index, gid in enumerate(more.get("gids", "").split()):
        (folder / "gids" / str(index)).write_text(f"{gid}\n")


def test_ports_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gid = "fe80:0000:0000:0000:a088:c203:0012:3456"
    write_port(tmp_path, "mlx5_0", 1, "4: ACTIVE", gids=f"{gid} {NO_ADDRESS}")
    write_port(tmp_path, "mlx5_1", 1, "1: DOWN", layer="Ethernet", gids=NO_ADDRESS)
    monkeypatch.setattr(infiniband, "_CARDS", tmp_path)
    found = read_fabric(setting())
    assert found.ports == (
        UP,
        Port("mlx5_1", 1, "DOWN", "Ethernet", "400 Gb/sec (4X NDR)", has_address=False),
    )


def test_without_cards_there_is_nothing_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infiniband, "_CARDS", tmp_path / "none")
    assert read_fabric(setting()).ports == ()
    assert levels(infiniband.judge_ports, Fabric()) == ["ok"]
    assert levels(infiniband.judge_gpu_access, Fabric()) == ["ok"]


DOWN = replace(UP, card="mlx5_1", state="DOWN")


@pytest.mark.parametrize(
    ("ports", "environ", "level"),
    [
        ((UP,), {}, "ok"),
        ((UP, DOWN), {}, "warning"),
        ((UP, DOWN), {"NCCL_IB_HCA": "mlx5_0"}, "ok"),  # NCCL is not to use the other one
        ((UP, DOWN), {"NCCL_IB_HCA": "=mlx5_1:1"}, "problem"),
        ((DOWN,), {}, "warning"),  # NCCL goes over sockets
        ((DOWN,), {"NCCL_IB_HCA": "mlx5"}, "problem"),
        ((DOWN,), {"NCCL_IB_DISABLE": "1"}, "ok"),
        ((replace(UP, layer="Ethernet", has_address=False),), {}, "warning"),
        ((replace(UP, state="INIT"),), {}, "warning"),  # no subnet manager has answered
    ],
)
def test_what_ports_are_worth(ports: tuple[Port, ...], environ: dict[str, str], level: str) -> None:
    assert levels(infiniband.judge_ports, Fabric(ports=ports), setting(**environ)) == [level]


def test_ports_of_several_speeds_are_told() -> None:
    slow = replace(UP, card="mlx5_2", rate="100 Gb/sec (4X EDR)")
    ((_, text),) = said(infiniband.judge_ports, Fabric(ports=(UP, slow)))
    assert "mlx5_0 400 Gb/sec (4X NDR)" in text
    assert "mlx5_2 100 Gb/sec (4X EDR)" in text


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (Fabric((UP,), gpus=True, peermem=True), "ok"),
        (Fabric((UP,), gpus=True, open_driver=True), "ok"),  # by DMA-BUF
        (Fabric((UP,), gpus=True), "warning"),
        (Fabric((UP,)), "ok"),
        (Fabric((DOWN,), gpus=True), "ok"),
    ],
)
def test_gpus_are_reached_by_the_cards(facts: Fabric, level: str) -> None:
    assert levels(infiniband.judge_gpu_access, facts) == [level]
