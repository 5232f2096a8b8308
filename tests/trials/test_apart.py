"""What keeps cells apart that run at the same time."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.trials.resources import MachineShare, ScratchSpace, share_machine, visible_devices
from hypothesis import given
from hypothesis import strategies as st


def test_a_cell_alone_is_started_as_one_starts_it_by_hand() -> None:
    assert share_machine(1, ["0", "1"]) == [MachineShare()]
    assert MachineShare().environment(Path("/r"), Path("/t"), 20000) == {}


@given(st.integers(2, 8), st.integers(0, 32))
def test_gpus_are_shared_out_evenly_and_none_twice(jobs: int, count: int) -> None:
    devices = [f"GPU-{n}" for n in range(count)]
    if 0 < count < jobs:
        with pytest.raises(UsageError, match=f"of these there are {count}"):
            share_machine(jobs, devices)
        return
    found = share_machine(jobs, devices)
    given_out = [device for share in found for device in share.devices]
    assert len(found) == jobs
    assert len(given_out) == len(set(given_out))
    assert {len(share.devices) for share in found} == {count // jobs}


def test_cells_side_by_side_differ_in_ports_folders_and_gpus() -> None:
    one, two = share_machine(2, ["0", "1", "2", "3"])
    first = one.environment(Path("/run/1"), Path("/tmp/a"), 20001)
    second = two.environment(Path("/run/2"), Path("/tmp/b"), 20002)
    assert first.keys() == second.keys()
    assert all(first[name] != second[name] for name in first)
    assert first["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert {"MASTER_PORT", "PET_MASTER_PORT", "WANDB_DIR", "WANDB_CACHE_DIR", "TMPDIR"} < set(first)


def test_without_gpus_nothing_is_said_of_them() -> None:
    one, _ = share_machine(2, [])
    assert "CUDA_VISIBLE_DEVICES" not in one.environment(Path("/r"), Path("/t"), 1)


def test_the_gpus_that_the_user_left_visible_are_all_there_are() -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "3, GPU-ab"}) == ("3", "GPU-ab")
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_no_port_is_given_twice_and_none_that_is_in_use() -> None:
    scratch = ScratchSpace()
    ports = [scratch.port() for _ in range(50)]
    assert len(set(ports)) == 50
    with socket.socket() as taken:
        taken.bind(("", ports[0]))
        again = ScratchSpace(given=set(range(20000, 29400)) - {ports[0]})
        with pytest.raises(OSError, match="no free port"):
            again.port()


def test_a_temporary_folder_has_room_for_the_path_of_a_socket() -> None:
    folder = ScratchSpace().folder()
    try:
        assert len(str(folder / "hangbisect-0123456789ab" / "socket")) < 107
    finally:
        folder.rmdir()


def test_temporary_folders_that_nobody_removed_are_removed_at_the_end() -> None:
    scratch = ScratchSpace()
    one, two = scratch.folder(), scratch.folder()
    scratch.remove(one)
    assert (one.exists(), two.exists()) == (False, True)
    (two / "file").touch()
    scratch.remove()
    assert not two.exists()
