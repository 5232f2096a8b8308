"""Versions of packages as toggles of an isolation: each is tried in an environment of its own.

Such an environment is a virtual one that uv makes in the isolation's folder, of the interpreter
that the command has. In it lies only what uv would change to install that version where the job
runs today; a `.pth` file adds the folders of the job's own environment behind it, and programs of
that one (torchrun) are there again, for the interpreter of this one. Nothing is written elsewhere,
but into the cache of uv.

uv itself sees no packages behind a `.pth` file. So what it would change it says of an environment
that has the names, versions and requirements of the job's packages and nothing else (`--dry-run`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path

from ..base.deadline import run_command
from ..base.errors import HangbisectError, UsageError, nearest
from ..base.files import write_whole
from ..base.json_codec import from_json
from ..base.lazy_dataclass import dataclass
from ..base.words import format_count, format_seconds, join_lines
from ..monitor.ending import ProcessFamily
from ..rank.watched.unreached_ranks import read_interpreter
from ..toggles.command_toggles import AppliedSetting
from ..toggles.toggle import Toggle, version_toggle

FOLDER = "versions"  # in the isolation's folder
INSTALL_LIMIT = 1800.0  # seconds: a server's wheels and those of torch are some gigabytes
_PLAN_LIMIT = 300.0  # seconds for uv to say what it would change: it may have to build an sdist
_ASK_LIMIT = 60.0  # seconds for a Python to start and to list its packages
_END_LIMIT = 10.0  # seconds for a uv that is ended to be gone
_COMPLETE = "complete.json"  # in an environment: all that differs is installed
_INSTALL_UV = "pip install uv, in any environment of yours, or https://docs.astral.sh/uv"
_SPELLING = "--version vllm=0.19.1,0.20.0"
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?")
_ADDED = re.compile(r"^ [+~] ([A-Za-z0-9][\w.-]*)==(\S+)", re.MULTILINE)
_LARGEST_SCRIPT = 1 << 20  # bytes: what pip writes for an entry point has some 200
_LONGEST_LINE = 120  # characters of a first line that every kernel takes (execve(2): 127)
_MOST_SAID = 400  # characters of what uv said
_ASK = """
import sys
sys.path[:] = [one for one in sys.path if one]  # not the folder that it is started in
import json, sysconfig
from importlib.metadata import distributions
packages = []
for one in distributions():
    try:
        packages.append({"name": one.metadata["Name"] + "", "version": one.version + "",
                         "requires": list(one.requires or ())})
    except Exception:  # one that is half removed
        pass
ends = ("site-packages", "dist-packages")
print(json.dumps({"executable": sys.executable, "scripts": sysconfig.get_path("scripts"),
    "folders": [one for one in sys.path if one.rstrip("/").endswith(ends)], "packages": packages}))
"""


class CannotInstall(HangbisectError):
    """A version that cannot be had: the message says why."""


@dataclass(frozen=True)
class InstalledPackage:
    name: str
    version: str
    requires: tuple[str, ...] = ()  # as its metadata has them: "torch>=2.4; extra == 'gpu'"


@dataclass(frozen=True)
class JobPython:
    """The environment that a command runs in, as its interpreter describes it."""

    executable: str
    scripts: str  # the folder of its programs
    folders: tuple[str, ...]  # of its packages, in order
    packages: tuple[InstalledPackage, ...] = ()

    def find(self, package: str) -> str | None:
        """Return the version of a package, None if it is not installed."""
        from packaging.utils import canonicalize_name

        wanted = canonicalize_name(package)
        found = (one for one in self.packages if canonicalize_name(one.name) == wanted)
        return next((one.version for one in found), None)


def parse_versions(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return versions by package, of words like "vllm=0.19.1,0.20.0", each once.

    Raises UsageError for what is no name of a package or no version, CannotInstall where the
    library that reads them is not installed.
    """
    if find_spec("packaging") is None:
        raise CannotInstall(
            "--version needs packaging, which is not installed beside hangbisect",
            "pip install 'hangbisect[versions]', or packaging and uv",
        )
    from packaging.utils import InvalidName, canonicalize_name
    from packaging.version import InvalidVersion, Version

    found: dict[str, dict[Version, str]] = {}
    for word in words:
        name, equals, listed = word.partition("=")
        if not equals or listed.startswith("="):
            raise UsageError(f"--version takes NAME=VERSION,...: {word!r} is none", _SPELLING)
        try:
            package = canonicalize_name(name.strip(), validate=True)
        except InvalidName:
            raise UsageError(f"--version: {name!r} is no name of a package", _SPELLING) from None
        for version in listed.split(","):
            try:
                found.setdefault(package, {}).setdefault(Version(version), version.strip())
            except InvalidVersion:
                raise UsageError(
                    f"--version: {version!r} is no version of {package}",
                    f"{_SPELLING}: whole versions, no ranges (https://peps.python.org/pep-0440)",
                ) from None
    return {package: tuple(versions.values()) for package, versions in found.items()}


def order_versions(installed: str, versions: Sequence[str]) -> list[str]:
    """Return those that are not the installed one, the nearest to it first; of two that are as near
    the newer one.
    """
    from packaging.version import InvalidVersion, Version

    try:
        now = Version(installed)
    except InvalidVersion:  # of a build of its own
        return list(versions)
    others = [one for one in versions if Version(one) != now]
    newer = sorted((one for one in others if Version(one) > now), key=Version)
    older = sorted((one for one in others if Version(one) < now), key=Version, reverse=True)
    return [one for pair in zip_longest(newer, older) for one in pair if one is not None]


def find_python(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the path of the Python that a command starts: the first that is a word of it, or that
    a program of it names in its first line; else the first of PATH. "" for none.
    """
    path = environ.get("PATH", os.defpath)
    for word in command:
        program = shutil.which(word, path=path)
        for found in (program, read_interpreter(program, path)) if program else ():
            if found and _PYTHON.fullmatch(os.path.basename(found)):
                return os.path.abspath(found)
    first = shutil.which("python3", path=path) or shutil.which("python", path=path)
    return os.path.abspath(first) if first else ""


def read_python(executable: str) -> JobPython:
    """Return the environment of a Python, by asking it. Raises CannotInstall."""
    try:
        ran = run_command([executable, "-c", _ASK], _ASK_LIMIT)
        return from_json(JobPython, json.loads(ran.out))
    except OSError as error:
        why = str(error.strerror)
    except (ValueError, RecursionError):
        why = _last_line(ran.err) or "no answer"
        why = f"no answer within {_ASK_LIMIT:.0f} s" if ran.status is None else why
    raise CannotInstall(
        f"the Python of the command, {executable}, does not say what is installed: {why}",
        "Its version has to be 3.8 or later.",
    )


def find_uv(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start uv: in PATH, else beside us. Raises CannotInstall."""
    if found := shutil.which("uv", path=environ.get("PATH", os.defpath)):
        return (found,)
    if find_spec("uv") is not None:
        return (sys.executable, "-m", "uv")
    raise CannotInstall(
        "--version needs uv, which makes the environments: there is none", _INSTALL_UV
    )


@dataclass(frozen=True)
class VersionEnvironment:
    """One environment that was made: what differs in it from the job's."""

    versions: Mapping[str, str]
    differs: Mapping[str, str] = field(default_factory=dict)  # all that is installed in it


class VersionEnvironments:
    """The environments of one isolation, below its folder."""

    def __init__(self, python: JobPython, uv: Sequence[str], folder: Path) -> None:
        self.python = python
        self._uv = tuple(uv)
        self._folder = folder.absolute() / FOLDER
        self._programs = frozenset(_list_programs_of(python))

    def describe(self) -> str:
        """Return in a sentence what is made and where, before anything is started."""
        return (
            f"uv makes an environment for each version below {self._folder}, over that of "
            f"{self.python.executable}, in which nothing is changed."
        )

    def make_toggles(
        self, wanted: Mapping[str, Sequence[str]], stopping: threading.Event | None = None
    ) -> tuple[Toggle, ...]:
        """Return a toggle for each package, once uv has said that each version can be had.

        Raises UsageError for a package that is not installed, for versions that are no change, and
        for one that there is not.
        """
        return tuple(
            self._make_toggle(package, versions, stopping) for package, versions in wanted.items()
        )

    def _make_toggle(
        self, package: str, versions: Sequence[str], stopping: threading.Event | None
    ) -> Toggle:
        installed = self.python.find(package)
        if installed is None:
            names = [one.name for one in self.python.packages]
            raise UsageError(
                f"--version names {package}, which is not installed for {self.python.executable}"
                f"{nearest(package, names)}",
                "It is the Python that the command names first, or else the first of PATH.",
            )
        others = order_versions(installed, versions)
        if not others:
            raise UsageError(
                f"--version names {package} {installed} alone, which is what is installed",
                "Name another one: the job is started with the installed version anyway.",
            )
        more = ""
        for version in others:
            try:
                plan = self._plan({package: version}, _PLAN_LIMIT, stopping)
            except CannotInstall as error:
                raise UsageError(
                    f"--version: {package} {version} cannot be had: {error}",
                    f"Which there are: {' '.join(self._uv)} pip install --dry-run '{package}>0'; "
                    "an index of your own: UV_INDEX, UV_FIND_LINKS.",
                ) from None
            beside = [f"{name} {of}" for name, of in plan.items() if name != package]
            more = ", ".join(beside[:3]) + (f" and {len(beside) - 3} more" if beside[3:] else "")
        cost = f"that version, and what else it needs changed: {more}" if more else ""
        return replace(version_toggle(package, installed, others), cost=cost)

    def run_in(self, made: AppliedSetting, environ: Mapping[str, str]) -> AppliedSetting:
        """Return what to start in the environment with the versions of `made`, if it has any;
        `environ` is what the command gets otherwise.
        """
        if not made.versions:
            return made
        programs = str(self.find_folder(made.versions) / "bin")
        variables = {"PATH": os.pathsep.join([programs, environ.get("PATH", os.defpath)])}
        if environ.get("VIRTUAL_ENV"):
            variables["VIRTUAL_ENV"] = os.path.dirname(programs)
        words = tuple(self._place(word, programs) for word in made.command)
        return replace(made, command=words, environment={**made.environment, **variables})

    def _place(self, word: str, programs: str) -> str:
        """Return a word; of a program of the job's environment, by its path, that of the other."""
        folder, name = os.path.split(word)
        if not folder or name not in self._programs:
            return word
        same = os.path.abspath(folder) == self.python.scripts
        return os.path.join(programs, name) if same else word

    def find_folder(self, versions: Mapping[str, str]) -> Path:
        """Return where the environment with these versions lies, or will."""
        return self._folder / "+".join(f"{name}-{of}" for name, of in sorted(versions.items()))

    def make(
        self, versions: Mapping[str, str], limit: float, stopping: threading.Event
    ) -> VersionEnvironment:
        """Return the environment with these versions, made within `limit` seconds if it is not
        there yet. Raises CannotInstall: what was begun is removed.
        """
        folder = self.find_folder(versions)
        if (known := _read_complete(folder)) is not None:
            return known
        until = time.monotonic() + limit
        try:
            plan = self._plan(versions, limit, stopping)
            self._start_environment(folder, max(0.0, until - time.monotonic()), stopping)
            listed = [f"{name}=={of}" for name, of in plan.items()]
            words = ["pip", "install", "--no-deps", "--python", str(folder / "bin" / "python")]
            left = max(0.0, until - time.monotonic())
            self._run([*words, *listed], left, stopping)
            made = VersionEnvironment(dict(versions), plan)
            self._add_job(folder)
            text = json.dumps({"versions": dict(versions), "differs": plan}, indent=1)
            write_whole(folder / _COMPLETE, text.encode())
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise CannotInstall(f"{folder}: {error.strerror}") from None
            raise
        return made

    def remove_others(self, versions: Mapping[str, str]) -> Path | None:
        """Remove all environments but that with these versions; return where that is, None if it
        is not there.
        """
        kept = self.find_folder(versions) if versions else None
        for one in self._folder.iterdir() if self._folder.is_dir() else ():
            if one != kept:
                shutil.rmtree(one, ignore_errors=True)
        if kept is not None and kept.is_dir():
            return kept
        shutil.rmtree(self._folder, ignore_errors=True)
        return None

    # ---- what uv does ----------------------------------------------------------------------------

    def _plan(
        self, versions: Mapping[str, str], limit: float, stopping: threading.Event | None
    ) -> dict[str, str]:
        """Return what uv would install beside what the job has, by name. Raises CannotInstall."""
        until = time.monotonic() + limit
        try:
            with tempfile.TemporaryDirectory(prefix="hangbisect-") as name:
                folder = Path(name) / "names"
                self._start_environment(folder, limit, stopping)
                _write_names(_find_packages_folder(folder), self.python.packages)
                python = str(folder / "bin" / "python")
                words = ["pip", "install", "--dry-run", "--python", python]
                listed = [f"{package}=={of}" for package, of in versions.items()]
                left = max(0.0, until - time.monotonic())
                return dict(_ADDED.findall(self._run([*words, *listed], left, stopping)))
        except OSError as error:
            raise CannotInstall(str(error.strerror or error)) from None

    def _start_environment(
        self, folder: Path, limit: float, stopping: threading.Event | None
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        words = ["venv", "--no-project", "--python", self.python.executable]
        self._run([*words, "--no-python-downloads", str(folder)], limit, stopping)

    def _run(
        self, words: Sequence[str], limit: float, stopping: threading.Event | None = None
    ) -> str:
        """Return what uv says. Raises CannotInstall where it fails or is not done in `limit` s."""
        command = [*self._uv, *words, "--color", "never", "--no-progress"]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            until, why = time.monotonic() + limit, ""
            while not why and process.poll() is None:
                time.sleep(0.05)
                if stopping is not None and stopping.is_set():
                    why = "interrupted"
                elif time.monotonic() > until:
                    why = f"uv was not done within {format_seconds(limit)}"
            if why:
                _end(process)
            said.seek(0)
            text = said.read(1 << 20).decode(errors="replace")
        if why or process.returncode != 0:
            raise CannotInstall(why or _shorten_complaint(text) or f"uv: {process.returncode}")
        return text

    def _add_job(self, folder: Path) -> None:
        """Add the job's own packages and programs behind those of an environment."""
        folders = [str(one) for one in self.python.folders]
        line = f"import site; list(map(site.addsitedir, {folders!r}))\n"
        # The last of the folder's .pth files: what it adds is behind what they add.
        (_find_packages_folder(folder) / "zz_packages_of_the_job.pth").write_text(line)
        for name in self._programs:
            source, target = Path(self.python.scripts) / name, folder / "bin" / name
            if not target.exists() and not _PYTHON.fullmatch(name):
                _copy_script(source, target, folder / "bin" / "python")


def _end(process: subprocess.Popen[bytes]) -> None:
    family = ProcessFamily("")
    family.add_rank(process.pid)
    family.end()
    try:
        process.wait(_END_LIMIT)
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"uv (pid {process.pid}) could not be ended, and is left") from None


def _find_packages_folder(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def _write_names(folder: Path, packages: Iterable[InstalledPackage]) -> None:
    """Write what packages are called and need into a folder of packages, without any of them."""
    for one in packages:
        stem = f"{re.sub(r'[-_.]+', '_', one.name)}-{one.version}"
        lines = ["Metadata-Version: 2.1", f"Name: {one.name}", f"Version: {one.version}"]
        lines += [f"Requires-Dist: {required}" for required in one.requires]
        (folder / f"{stem}.dist-info").mkdir(exist_ok=True)
        text = "\n".join(lines) + "\n"
        (folder / f"{stem}.dist-info" / "METADATA").write_text(text, encoding="utf-8")


def _list_programs_of(python: JobPython) -> Iterable[str]:
    """Yield the names of the Pythons in the job's environment, and of the scripts for them."""
    try:
        entries = [one for one in os.scandir(python.scripts) if one.is_file()]
    except OSError:
        return
    for entry in entries:
        if _PYTHON.fullmatch(entry.name):
            yield entry.name
        elif entry.stat().st_size <= _LARGEST_SCRIPT:
            found = read_interpreter(entry.path)
            is_there = os.path.dirname(found) == python.scripts or found == python.executable
            if found and is_there and _PYTHON.fullmatch(os.path.basename(found)):
                yield entry.name


def _copy_script(source: Path, target: Path, python: Path) -> None:
    """Write a script for another Python; what cannot be read is left out."""
    try:
        rest = source.read_bytes().partition(b"\n")[2]
        mode = stat.S_IMODE(source.stat().st_mode)
    except OSError:
        return
    if rest.startswith(b"'''exec' "):  # of a shell, whose own first line it was
        rest = rest.partition(b"\n")[2].removeprefix(b"' '''\n")
    line = f"#!{python}"
    if " " in line or len(line) > _LONGEST_LINE:
        line = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''"
    target.write_bytes(os.fsencode(line) + b"\n" + rest)
    target.chmod(mode)


def _read_complete(folder: Path) -> VersionEnvironment | None:
    try:
        return from_json(VersionEnvironment, json.loads((folder / _COMPLETE).read_text()))
    except (OSError, ValueError, RecursionError):
        return None


def _shorten_complaint(said: str) -> str:
    """Return what went wrong, of what uv said: the sentences of its causes, else its last line."""
    text = join_lines(said.partition("error:")[2] or said.partition("cause:")[2])
    reason = text.rpartition("cause:")[2].strip() or _last_line(said)
    return reason[:_MOST_SAID]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MOST_SAID] if lines else ""


def describe_environment(made: VersionEnvironment, seconds: float) -> str:
    """Return what was made, for the story."""
    versions = ", ".join(f"{name} {of}" for name, of in made.versions.items())
    count = format_count(len(made.differs), "package")
    return f"{versions}: an environment of its own, {count} in it, in {format_seconds(seconds)}"
