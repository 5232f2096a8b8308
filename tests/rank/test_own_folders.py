"""Folders of our own: made for this user alone, nobody else's is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hangbisect.rank.our_folders import bases, is_own_folder, make, make_new


def test_a_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    made = make_new("hangbisect-x-", "socket", {"TMPDIR": str(tmp_path)})
    try:
        assert is_own_folder(made)
        assert os.stat(made).st_mode & 0o777 == 0o700
    finally:
        os.rmdir(made)


def test_a_folder_open_to_others_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(FileExistsError):
        make(str(tmp_path / "open"))


def test_a_link_to_a_folder_of_ours_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(FileExistsError):
        make(str(tmp_path / "link"))


def test_what_outlives_a_login_comes_before_the_folder_of_the_login() -> None:
    found = list(bases({"XDG_RUNTIME_DIR": "/run/user/1", "TMPDIR": "/scratch"}))
    assert found == ["/dev/shm", "/scratch", "/tmp", "/run/user/1"]
