"""The text of /proc/mounts, where a path lies, the caches of the libraries, and what is said."""

from __future__ import annotations

from hangbisect.doctor.folders import (
    Folder,
    Mount,
    Placed,
    answers,
    caches,
    mount_of,
    network,
    parse_mounts,
)
from hypothesis import given
from hypothesis import strategies as st

from .made_up import levels, said, setting

GIB = 1 << 30
ROOT = Mount("/", "ext4", "/dev/sda1")
LUSTRE = Mount("/scratch", "lustre", "10.0.0.1@o2ib:/fs")
HUB, BUILDS = Folder("hub cache", "/x/hub", "HF_HUB_CACHE", True), Folder("home", "/root")
POINTS = st.lists(st.sampled_from(["a", "b", "c c", "tab\t", "ö", "\\"]), max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)


def escaped(text: str) -> str:
    """Return a path as the kernel writes it."""
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in text)


@given(st.lists(st.tuples(POINTS, st.sampled_from(["ext4", "nfs4", "fuse.sshfs"])), max_size=6))
def test_mounts_are_read_as_the_kernel_writes_them(rows: list[tuple[str, str]]) -> None:
    text = "".join(f"source {escaped(point)} {kind} rw 0 0\n" for point, kind in rows)
    assert [(one.point, one.kind) for one in parse_mounts(text)] == rows


@given(st.text("/ \\0174 nfs\n") | st.text())
def test_any_text_is_taken_for_mounts(text: str) -> None:
    mount_of("/a/b", parse_mounts(text))


@given(st.lists(POINTS, min_size=1, max_size=6), POINTS)
def test_a_path_lies_on_the_nearest_mount_above_it_the_last_one_there(
    points: list[str], path: str
) -> None:
    mounts = [Mount(point, str(n), "") for n, point in enumerate(points)]
    found = mount_of(path, mounts)
    above = [one for one in mounts if (path + "/").startswith(one.point.rstrip("/") + "/")]
    if not above:
        assert found is None
    else:
        longest = max(len(one.point) for one in above)
        assert found == [one for one in above if len(one.point) == longest][-1]


def test_a_name_that_only_begins_alike_is_not_below() -> None:
    assert mount_of("/scratch2/x", [ROOT, LUSTRE]) == ROOT
    assert mount_of("/scratch/x", [ROOT, LUSTRE]) == LUSTRE
    assert mount_of("/scratch", [ROOT, LUSTRE]) == LUSTRE


def test_what_counts_as_a_network() -> None:
    remote = ("nfs", "nfs4", "cifs", "lustre", "gpfs", "ceph", "9p", "beegfs", "fuse.sshfs")
    local = ("ext4", "xfs", "tmpfs", "overlay", "fuse.fuse-overlayfs", "fuseblk", "virtiofs")
    assert all(Mount("/", kind, "").is_network for kind in remote)
    assert not any(Mount("/", kind, "").is_network for kind in local)


def test_caches_are_where_the_libraries_look() -> None:
    by_title = {one.title: one.path for one in caches({"HF_HOME": "/data/hf"})}
    assert by_title["hub cache"] == "/data/hf/hub"
    assert by_title["datasets cache"] == "/data/hf/datasets"
    moved = caches({"XDG_CACHE_HOME": "/c", "TRITON_HOME": "/t", "HF_HUB_CACHE": "/h"})
    by_title = {one.title: one.path for one in moved}
    assert by_title["torch extensions"] == "/c/torch_extensions"
    assert by_title["Triton cache"] == "/t/.triton/cache"
    assert by_title["hub cache"] == "/h"
    assert by_title["datasets cache"] == "/c/huggingface/datasets"


def test_a_file_system_that_does_not_answer_is_a_problem_told_once() -> None:
    facts = (
        Placed(HUB, HUB.path, LUSTRE, late=True),
        Placed(BUILDS, BUILDS.path, LUSTRE, late=True),
        Placed(BUILDS, BUILDS.path, ROOT, 9 * GIB, 10 * GIB),
    )
    ((level, value),) = said(answers, facts)
    assert level == "problem"
    assert "hub cache (/x/hub), home (/root): lustre of 10.0.0.1@o2ib:/fs does not" in value


def test_room_and_errors() -> None:
    assert levels(answers, (Placed(HUB, "/x", ROOT, 9 * GIB, 10 * GIB),)) == ["ok"]
    assert levels(answers, (Placed(HUB, "/x", ROOT, 9, 10 * GIB),)) == ["warning"]
    # Some sandboxes say 0 of 0.
    assert levels(answers, (Placed(HUB, "/x", ROOT, 0, 0),)) == ["ok"]
    assert levels(answers, (Placed(HUB, "/x", ROOT, error="Permission denied"),)) == ["warning"]


def test_a_cache_with_locks_on_a_network_is_a_warning_a_working_folder_is_not() -> None:
    remote = Placed(HUB, "/scratch/hub", LUSTRE, GIB, GIB)
    ((level, value),) = said(network, (remote,))
    assert (level, "hub cache on lustre" in value) == ("warning", True)
    working = Placed(Folder("working folder", "/scratch"), "/scratch", LUSTRE, GIB, GIB)
    assert said(network, (working,)) == [("ok", "working folder on lustre")]
    assert levels(network, (remote, working)) == ["warning", "ok"]
    assert said(network, (), setting()) == [("ok", "all local")]
