"""The folders that a start-up writes to: on which file system they are, and if it answers."""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..base.files import NETWORK_FILE_SYSTEM, unescape
from ..base.lazy_dataclass import dataclass
from ..base.words import GIB, format_bytes
from .examination import Check, CheckFamily, Finding, Setting, ok, problem, run_in_threads, warning

PATIENCE = 2.0  # seconds for a file system to say how full it is


@dataclass(frozen=True)
class Folder:
    """A folder that is used at the start. `locks`: processes meet in it by locks on files."""

    title: str
    path: str
    variable: str = ""  # that moves it
    locks: bool = False


@dataclass(frozen=True)
class Mount:
    """A line of /proc/mounts."""

    point: str
    kind: str
    source: str

    @property
    def is_network(self) -> bool:
        """It is, or may well be, another machine's."""
        return bool(NETWORK_FILE_SYSTEM.fullmatch(self.kind))


@dataclass(frozen=True)
class Placed:
    """Where a folder lies. None: its file system did not answer, or does not say."""

    folder: Folder
    path: str  # without links
    mount: Mount | None = None
    free: int | None = None
    total: int | None = None
    late: bool = False
    error: str = ""


def caches(environ: Mapping[str, str]) -> tuple[Folder, ...]:
    """Return the caches of the libraries, by the rules of each."""
    user = os.path.expanduser("~")
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(user, ".cache")
    home = _expanded(environ.get("HF_HOME") or os.path.join(cache, "huggingface"))
    hub = environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE")
    sets = environ.get("HF_DATASETS_CACHE") or os.path.join(home, "datasets")
    built = environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(cache, "torch_extensions")
    # triton.knobs: its own home, or the user's.
    triton = environ.get("TRITON_CACHE_DIR") or os.path.join(
        environ.get("TRITON_HOME") or user, ".triton", "cache"
    )
    compiled = environ.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(
        _temporary(environ), f"torchinductor_{_user()}"
    )
    return (
        Folder("hub cache", _expanded(hub or os.path.join(home, "hub")), "HF_HUB_CACHE", True),
        Folder("datasets cache", _expanded(sets), "HF_DATASETS_CACHE", True),
        Folder("torch extensions", _expanded(built), "TORCH_EXTENSIONS_DIR", True),
        Folder("Triton cache", _expanded(triton), "TRITON_CACHE_DIR", True),
        Folder("torch.compile cache", _expanded(compiled), "TORCHINDUCTOR_CACHE_DIR", True),
    )


def others(environ: Mapping[str, str]) -> tuple[Folder, ...]:
    """Return the other folders of a start-up."""
    found = [Folder("home", os.path.expanduser("~"))]
    with contextlib.suppress(FileNotFoundError):  # it was removed
        found.append(Folder("working folder", os.getcwd()))
    found.append(Folder("temporary files", _temporary(environ), "TMPDIR"))
    if environ.get("WANDB_DIR"):
        found.append(Folder("W&B's files", _expanded(environ["WANDB_DIR"]), "WANDB_DIR"))
    return tuple(found)


def _temporary(environ: Mapping[str, str]) -> str:
    """Return TMPDIR or /tmp. tempfile.gettempdir() would try it out with a file."""
    named = (environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return next((path for path in named if path and os.path.isabs(path)), "/tmp")


def _expanded(path: str) -> str:
    return os.path.abspath(os.path.expanduser(os.path.expandvars(path)))


def _user() -> str:
    try:
        return re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"


# ---- file systems --------------------------------------------------------------------------------


def mounted() -> tuple[Mount, ...]:
    """Return what is mounted for this process, in its order."""
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        return parse_mounts(file.read())


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Return the mounts in the text of /proc/mounts (man 5 fstab: blanks are octal there)."""
    lines = (line.split(" ") for line in text.splitlines())
    return tuple(
        Mount(unescape(fields[1]), fields[2], unescape(fields[0]))
        for fields in lines
        if len(fields) >= 4 and fields[1].startswith("/")
    )


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Return what is mounted where a path lies: the longest point above it, the last one there."""
    above = [one for one in mounts if _is_above(one.point, path)]
    nearest = max(enumerate(above), key=lambda item: (len(item[1].point), item[0]), default=None)
    return nearest[1] if nearest else None


def _is_above(point: str, path: str) -> bool:
    return point == "/" or path == point or path.startswith(point.rstrip("/") + "/")


def read_folders(setting: Setting) -> tuple[Placed, ...]:
    """Ask the file system of each folder how full it is."""
    folders = (*caches(setting.environ), *others(setting.environ))
    mounts = mounted()
    answers = run_in_threads(PATIENCE, {one: partial(_find_mount, one, mounts) for one in folders})
    return tuple(
        answer if isinstance(answer, Placed) else _not_placed(one, mounts, answer)
        for one, answer in answers.items()
    )


def _find_mount(folder: Folder, mounts: Sequence[Mount]) -> Placed:
    path = os.path.realpath(folder.path)
    there = Path(path)
    while not there.exists() and there != there.parent:
        there = there.parent
    space = os.statvfs(there)
    if not os.access(there, os.W_OK):
        raise PermissionError(errno.EACCES, "it cannot be written to")
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    return Placed(folder, path, mount_of(path, mounts), free, total)


def _not_placed(folder: Folder, mounts: Sequence[Mount], error: Exception) -> Placed:
    late = isinstance(error, TimeoutError)
    # Without following links, which would ask the disk.
    mount = mount_of(folder.path, mounts)
    why = "" if late else getattr(error, "strerror", None) or str(error)
    return Placed(folder, folder.path, mount, late=late, error=why)


# ---- judged --------------------------------------------------------------------------------------


def answers(setting: Setting, facts: tuple[Placed, ...]) -> Iterator[Finding]:
    """Judge whether the file systems answer, and have room."""
    late = [one for one in facts if one.late]
    for mount, these in _by_mount(late).items():
        who = ", ".join(f"{one.folder.title} ({one.path})" for one in these)
        what = f"{mount.kind} of {mount.source}" if mount else "its file system"
        yield problem(
            f"{who}: {what} does not answer within {PATIENCE:g} s",
            f"stat {these[0].path}; what reads there hangs in the kernel, and cannot be ended",
        )
    for error in dict.fromkeys(one.error for one in facts if one.error):
        these = [one for one in facts if one.error == error]
        moved = [f"{one.folder.variable}=..." for one in these if one.folder.variable]
        yield warning(
            f"{', '.join(one.folder.title for one in these)} ({these[0].path}): {error}",
            f"a folder of your own: {' '.join(moved)}" if moved else "",
        )
    # A file system of size 0 (overlays of some sandboxes) does not say how full it is.
    full = [one for one in facts if one.free is not None and one.total and one.free < GIB]
    for these in _by_mount(full).values():
        who = ", ".join(one.folder.title for one in these)
        yield warning(
            f"{format_bytes(these[0].free or 0)} free for {who} ({these[0].path})",
            f"df -h {these[0].path}; a download or a checkpoint fills it",
        )
    if not late and not full and not any(one.error for one in facts):
        yield ok(f"{len(_by_mount(facts))} file system(s) of {len(facts)} folders answer")


def network(setting: Setting, facts: tuple[Placed, ...]) -> Iterator[Finding]:
    """Judge whether caches with locks, or the working folder, lie on another machine."""
    remote = [one for one in facts if one.mount is not None and one.mount.is_network]
    with_locks = [one for one in remote if one.folder.locks]
    for mount, these in _by_mount(with_locks).items():
        if mount is not None:
            moved = " ".join(f"{one.folder.variable}=..." for one in these)
            yield warning(
                f"{', '.join(one.folder.title for one in these)} on {mount.kind} ({mount.point}): "
                "its locks are slow, may be missing, and other nodes hold them too",
                f"a folder on a local disk for each job: {moved}",
            )
    rest = [one for one in remote if not one.folder.locks]
    if rest or not with_locks:
        places = ", ".join(
            f"{one.folder.title} on {one.mount.kind if one.mount else '?'}" for one in rest
        )
        yield ok(places or "all local")


def _by_mount(placed: Sequence[Placed]) -> dict[Mount | None, list[Placed]]:
    found: dict[Mount | None, list[Placed]] = {}
    for one in placed:
        found.setdefault(one.mount, []).append(one)
    return found


FAMILY = CheckFamily(
    "Folders",
    (
        Check(
            id="file-systems",
            title="the file systems of caches and of the working folder answer, and have room",
            why="What reads from a file system that is gone hangs in the kernel: an import, a "
            "cache, a log.",
            read=read_folders,
            judge=answers,
        ),
        Check(
            id="network-caches",
            title="caches with locks lie on a local disk",
            why="Locks on network file systems may be missing, or be held by a node that is gone.",
            read=read_folders,
            judge=network,
        ),
    ),
)
