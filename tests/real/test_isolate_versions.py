"""Real jobs that hang with one version of a package and not with another, and what isolate says."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

LIMIT = 300.0  # seconds for an isolation, on a busy machine
STEPS = 60.0  # seconds for what a fixture starts
HANGS = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n"
STARTS = "from needed_part import NUMBER\n"
CRASHES = "raise RuntimeError('this version is broken')\n"
TRAIN = "import slow_library\nprint('trained', slow_library.__file__)\n"


def write_wheel(
    folder: Path, name: str, version: str, text: str, needs: Sequence[str] = (), script: str = ""
) -> Path:
    """Write a wheel with one module, and perhaps a program that imports it."""
    stem = f"{name}-{version}"
    files = {
        f"{name}.py": text,
        f"{stem}.dist-info/METADATA": "\n".join(
            [
                *(
                    "Metadata-Version: 2.1",
                    f"Name: {name.replace('_', '-')}",
                    f"Version: {version}",
                ),
                *(f"Requires-Dist: {one}" for one in needs),
                "",
            ]
        ),
        f"{stem}.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    if script:
        files[f"{stem}.dist-info/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=")
        lines.append(f"{path},sha256={digest.decode()},{len(content)}")
    files[f"{stem}.dist-info/RECORD"] = "\n".join([*lines, f"{stem}.dist-info/RECORD,,", ""])
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def break_wheel(wheel: Path) -> None:
    """Change a byte of its module: its metadata is read as before, and it cannot be unpacked."""
    content = wheel.read_bytes()
    at = content.index(b"broken on the way")
    wheel.write_bytes(content[:at] + b"B" + content[at + 1 :])


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str
    folder: Path

    @property
    def json(self) -> Any:
        return json.loads((self.folder / "isolation.json").read_text())


@dataclass(frozen=True)
class JobHere:
    """A job with an environment of its own, and an index of wheels, all in a folder."""

    folder: Path
    package: Path
    start: Callable[..., Any]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        return self.folder / "env of it" / "bin" / "python"

    @property
    def environ(self) -> dict[str, str]:
        ours = ("HANGBISECT_", "UV_", "VIRTUAL_ENV")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        index = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(self.folder / "wheels")}
        cache = {"UV_CACHE_DIR": str(self.folder / "cache"), "HANGBISECT_REPORTS": "later"}
        return {**plain, **index, **cache, **self.variables}

    def isolate(self, *words: str, command: Sequence[str] = ()) -> Answer:
        options = ["isolate", "--yes", "--stall", "2", "--confirm", "1", "--run-dir", "iso"]
        line = [sys.executable, str(self.package), *options, *words, "--"]
        command = command or (str(self.python), "train.py")
        process = self.start(*line, *command, cwd=self.folder, env=self.environ)
        out, err = process.communicate(timeout=LIMIT)
        return Answer(process.returncode, out, err, self.folder / "iso")

    def snapshot(self) -> dict[str, int]:
        """Return every file of the job's environment, with when it was changed."""
        return {
            str(path): path.lstat().st_mtime_ns
            for path in (self.folder / "env of it").rglob("*")
            if "__pycache__" not in path.parts and not path.is_dir()
        }


@pytest.fixture
def job(tmp_path: Path, package: Path, start: Callable[..., Any]) -> JobHere:
    here = JobHere(tmp_path, package, start)
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "needed_part", "1.0", "NUMBER = 1\n")
    write_wheel(wheels, "needed_part", "2.0", "NUMBER = 2\n")
    write_wheel(wheels, "kept_part", "1.0", "def main():\n    import slow_library\n", script="go")
    needs = ["needed-part"]
    write_wheel(wheels, "slow_library", "1.0", HANGS, needs)
    write_wheel(wheels, "slow_library", "1.5", HANGS, needs)
    write_wheel(wheels, "slow_library", "2.0", STARTS, ["needed-part>=2"])
    write_wheel(wheels, "slow_library", "3.0", CRASHES, needs)
    broken = write_wheel(wheels, "slow_library", "4.0", "x = 'broken on the way'\n", needs)
    (tmp_path / "train.py").write_text(TRAIN)
    uv = [sys.executable, "-m", "uv"]
    install = ["pip", "install", "-q", "--python", str(here.python)]
    listed = ["slow-library==1.0", "needed-part==1.0", "kept-part"]
    for words in (["venv", "-q", "--python", sys.executable, "env of it"], [*install, *listed]):
        subprocess.run([*uv, *words], cwd=tmp_path, env=here.environ, check=True, timeout=STEPS)
    break_wheel(broken)
    return here


def test_the_version_that_avoids_the_hang_is_named_and_the_jobs_environment_is_as_it_was(
    job: JobHere,
) -> None:
    before = job.snapshot()
    found = job.isolate("--version", "slow_library=1.5,2.0")
    assert found.status == 0, found.err
    first = found.out.splitlines()[0]
    assert first.startswith("ISOLATED  5 starts, ")
    assert first.endswith("it hangs with slow-library 1.0 and 1.5, starts with 2.0")
    assert "install   pip install slow-library==2.0" in found.out.splitlines()
    assert "costs     that version, and what else it needs changed: needed-part 2.0" in found.out
    (change,) = found.json["changes"]
    assert (change["toggle"], change["before"], change["value"]) == (
        *("slow_library_version", "1.0"),
        "2.0",
    )
    assert (change["package"], change["hung"]) == ("slow-library", ["1.0", "1.5"])
    assert job.snapshot() == before
    # Only the environment of the answer is left, in which what differs is installed and no more.
    (kept,) = (job.folder / "iso" / "versions").iterdir()
    assert kept.name == "slow-library-2.0"
    (there,) = kept.glob("lib/python*/site-packages")
    assert {one.name for one in there.glob("*.py")} - {"_virtualenv.py"} == {
        *("needed_part.py", "slow_library.py"),
    }
    # The line that is pasted runs it.
    ran = subprocess.run(
        *(["sh", "-c", found.json["paste"]],),
        cwd=job.folder,
        env=job.environ,
        capture_output=True,
        text=True,
        timeout=STEPS,
        check=True,
    )
    assert str(kept) in ran.stdout


def test_a_program_of_the_jobs_environment_is_started_for_the_other_one(job: JobHere) -> None:
    program = str(job.folder / "env of it" / "bin" / "go")
    found = job.isolate("--version", "slow_library=2.0", command=(program,))
    assert found.status == 0, found.err
    assert found.out.splitlines()[0].endswith("it hangs with slow-library 1.0, starts with 2.0")
    name = JobHere(job.folder, job.package, job.start, {"PATH": f"{job.python.parent}:/usr/bin"})
    (job.folder / "iso").rename(job.folder / "first")
    found = name.isolate("--version", "slow_library=2.0", command=("go",))
    assert found.status == 0, found.err
    assert found.json["changes"][0]["value"] == "2.0"


def test_a_version_that_cannot_be_installed_and_one_that_crashes_are_no_answer_and_said(
    job: JobHere,
) -> None:
    found = job.isolate("--version", "slow_library=3.0,4.0", "--only", "slow_library_version")
    assert found.status == 3, found.out + found.err
    results = {
        trial["setting"].get("slow_library_version"): trial["result"]
        for trial in found.json["trials"]
    }
    assert results == {None: "hang", "3.0": "other", "4.0": "other"}
    why = {
        trial["setting"].get("slow_library_version"): trial["why"] for trial in found.json["trials"]
    }
    assert why["4.0"].startswith("cannot be installed: ")
    assert why["3.0"].startswith("crash")
    assert "failed in another way" in found.json["unused"]["slow_library_version"]
    assert not (job.folder / "iso" / "versions").exists()


def test_a_command_that_chooses_its_python_itself_is_no_trial_of_a_version(job: JobHere) -> None:
    (job.folder / "own.sh").write_text(f"exec '{job.python}' train.py\n")
    environ = {"PATH": f"{job.python.parent}:/usr/bin:/bin"}
    own = JobHere(job.folder, job.package, job.start, environ)
    found = own.isolate(
        *("--version", "slow_library=2.0", "--only", "slow_library_version"),
        command=("sh", "own.sh"),
    )
    assert found.status == 3, found.err
    last = found.json["trials"][-1]
    assert last["result"] == "other"
    assert last["why"].startswith("the command chose its Python itself, ")


def test_what_cannot_be_tried_is_said_before_anything_is_started(job: JobHere) -> None:
    for words, said in {
        "slow_library": "--version takes NAME=VERSION,...: 'slow_library' is none",
        "slow_library==2.0": "--version takes NAME=VERSION,...: 'slow_library==2.0' is none",
        "slow_library=two": "--version: 'two' is no version of slow-library",
        "slow_library=2.0,": "--version: '' is no version of slow-library",
        "slow library=2.0": "--version: 'slow library' is no name of a package",
        "slow_libary=2.0": "--version names slow-libary, which is not installed for ",
        "slow_library=1.0": "--version names slow-library 1.0 alone, which is what is installed",
        "slow_library=9.9": "--version: slow-library 9.9 cannot be had: ",
    }.items():
        found = job.isolate("--version", words)
        assert found.status == 2, (words, found.err)
        assert said in found.err, words
        assert not found.folder.exists(), words


def test_without_uv_it_says_where_to_get_it(job: JobHere) -> None:
    # A Python of its own that has us and packaging, and no uv.
    folder = job.folder / "bare"
    folder.mkdir()
    (folder / "uv.py").write_text("raise ImportError\n")
    code = (
        "import sys, importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'uv' else find(name, *a)\n"
        "import runpy\n"
        f"sys.argv = ['x', 'isolate', '--yes', '--version', 'a=1', '--', {str(job.python)!r}]\n"
        f"sys.path.insert(0, {str(job.package.parent)!r})\n"
        f"runpy.run_path({str(job.package)!r}, run_name='__main__')\n"
    )
    environ = {**job.environ, "PATH": "/usr/bin:/bin"}
    process = job.start(sys.executable, "-c", code, cwd=job.folder, env=environ)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 1, err
    assert "--version needs uv, which makes the environments: there is none" in err
    assert "pip install uv" in err
