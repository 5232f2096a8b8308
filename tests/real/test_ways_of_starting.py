"""Each way of starting us, on real interpreters that have nothing else of ours.

An interpreter here is a virtual environment made for the test. It sees the libraries of the
environment that the tests run in, by a path and so without that one's .pth files: unless our
distribution is copied into it, it is one where we were never installed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .verdicts import REACHED
from .whole_jobs import ONE_THREAD

pytestmark = pytest.mark.xdist_group("ways of starting")  # one worker makes the environments
DEADLINE = 240.0
PROBE = Path(__file__).with_name("starting_probe.py")
PTH = "hangbisect-minus-m.pth"

Start = Callable[..., subprocess.Popen[str]]


@dataclass(frozen=True)
class Interpreter:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / minor / "site-packages"


@dataclass(frozen=True)
class Way:
    """A command that starts us, in a folder."""

    command: tuple[str | Path, ...]
    folder: Path
    python: Path


def make(folder: Path, *pth_lines: str, wheel: Path | None = None) -> Interpreter:
    """Make one, with `wheel` installed and with the lines in a .pth that is read before ours."""
    venv.create(folder, symlinks=True)
    made = Interpreter(folder)
    if wheel:  # before pip can see what is installed elsewhere
        pip(made, "install", "--quiet", "--no-index", "--no-deps", wheel)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (made.site_packages / "a.pth").write_text("\n".join([*libraries, *pth_lines]) + "\n")
    return made


def pip(made: Interpreter, *words: object) -> str:
    command = [sys.executable, "-m", "pip", "--python", made.python, *words]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is installed here, put together again from its record."""
    name = f"hangbisect-{importlib.metadata.version('hangbisect')}-py3-none-any.whl"
    made = tmp_path_factory.mktemp("wheel") / name
    left_by_pip = ("INSTALLER", "REQUESTED", "direct_url.json")
    with zipfile.ZipFile(made, "w") as archive:
        for file in importlib.metadata.files("hangbisect") or ():
            if file.parts[0] != ".." and file.name not in left_by_pip and file.suffix != ".pyc":
                archive.write(str(file.locate()), str(file))
    return made


def is_wheel_installed() -> bool:
    try:
        files = importlib.metadata.files("hangbisect") or ()
    except importlib.metadata.PackageNotFoundError:
        return False
    pip_is_here = importlib.util.find_spec("pip") is not None
    return pip_is_here and any(str(file) == "hangbisect/__main__.py" for file in files)


needs_wheel = pytest.mark.skipif(
    not is_wheel_installed(), reason="no wheel of ours is installed here (tox installs it)"
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    """One that never saw us."""
    return make(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def bare_with_random(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    """One whose .pth has imported `random`, and so the standard library's `bisect`."""
    return make(tmp_path_factory.mktemp("random") / "venv", "import random")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    return make(tmp_path_factory.mktemp("installed") / "venv", wheel=wheel)


@pytest.fixture(scope="module")
def installed_with_random(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    folder = tmp_path_factory.mktemp("installed-random") / "venv"
    return make(folder, "import random", wheel=wheel)


CHECKOUT_WAYS = ("checkout: -m bisect", "checkout: folder", "checkout: folder, random imported")
INSTALLED_WAYS = (
    "installed: -m bisect",
    "installed: -m bisect, random imported",
    "installed: -mbisect",
    "installed: -m hangbisect",
    "installed: command",
    "installed: -m bisect in a checkout",
)


@pytest.fixture(
    params=[*CHECKOUT_WAYS, *(pytest.param(w, marks=needs_wheel) for w in INSTALLED_WAYS)]
)
def way(request: pytest.FixtureRequest, checkout: Path, tmp_path: Path) -> Way:
    """Each way of starting one process."""
    name: str = request.param
    fixture = "bare" if name.startswith("checkout") else "installed"
    fixture += "_with_random" if name.endswith("random imported") else ""
    made: Interpreter = request.getfixturevalue(fixture)
    here = checkout if "checkout" in name else tmp_path
    words: tuple[str | Path, ...] = (made.python, "-m", "bisect")
    if "folder" in name:
        words = (made.python, "bisect")
    elif "-mbisect" in name:
        words = (made.python, "-umbisect")
    elif "-m hangbisect" in name:
        words = (made.python, "-m", "hangbisect")
    elif "command" in name:
        words = (made.folder / "bin" / "hangbisect",)
    return Way(words, here, made.python)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing but the way decides what is found."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "HANGBISECT"))}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "WANDB_MODE": "offline"} | ONE_THREAD


def output_of(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, f"{output}\n{errors}"
    return output


# ---- reached ----------------------------------------------------------------------------------


def torchrun(made: Interpreter, *words: object) -> list[object]:
    module = "torch.distributed.run"
    return [made.python, "-m", module, "--standalone", "--nproc_per_node=2", *words]


def both_ranks_came(output: str) -> bool:
    return all(
        any(f"[R{rank}/2]" in line and REACHED["arguments"] in line for line in output.splitlines())
        for rank in range(2)
    )


@pytest.mark.parametrize(
    ("fixture", "words"), [("bare", ["-m", "bisect"]), ("bare_with_random", ["bisect"])]
)
def test_torchrun_reaches_us_in_a_checkout(
    fixture: str,
    words: list[str],
    start: Start,
    checkout: Path,
    environ: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    made = request.getfixturevalue(fixture)
    run = ("--until", "arguments", "--run-dir", tmp_path / "run")
    assert both_ranks_came(
        output_of(start(*torchrun(made, *words, *run), cwd=checkout, env=environ))
    )


@needs_wheel
def test_torchrun_reaches_us_from_any_folder_once_installed(
    installed_with_random: Interpreter, start: Start, environ: dict[str, str], tmp_path: Path
) -> None:
    run = ("-m", "bisect", "--until", "arguments", "--run-dir", tmp_path / "run")
    command = torchrun(installed_with_random, *run)
    assert both_ranks_came(output_of(start(*command, cwd=tmp_path, env=environ)))


@needs_wheel
@pytest.mark.parametrize("fixture", ["installed", "installed_with_random"])
def test_the_checkout_one_stands_in_comes_before_the_installed_one(
    fixture: str,
    start: Start,
    checkout: Path,
    environ: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    shutil.copytree(checkout / "bisect", tmp_path / "bisect")
    (tmp_path / "bisect" / "base" / "version.py").write_text('VERSION = "of the checkout"\n')
    made: Interpreter = request.getfixturevalue(fixture)
    asked = start(made.python, "-m", "bisect", "--version", cwd=tmp_path, env=environ)
    assert output_of(asked) == "hangbisect of the checkout\n"


# ---- started again ----------------------------------------------------------------------------


def test_each_way_reaches_us_and_starts_the_same_package_again(
    way: Way, start: Start, environ: dict[str, str], tmp_path: Path, checkout: Path
) -> None:
    """Workers and Lightning start it again (starting_probe.py, as a step of the walk), from another
    folder than at the start too: the probe goes elsewhere first.
    """
    shutil.copy(PROBE, tmp_path)
    found = tmp_path / "found.json"
    environ |= {"PYTHONPATH": str(tmp_path), "PROBE_FOUND": str(found)}
    step = ("--use", "arguments=starting_probe:probe", "--until", "arguments")
    run = (*step, "--run-dir", tmp_path / "run")
    output = output_of(start(*way.command, *run, cwd=way.folder, env=environ))
    assert REACHED["arguments"] in output
    probed: dict[str, str] = json.loads(found.read_text())
    if way.folder == checkout:
        assert probed["package"] == str(checkout / "bisect")
    assert probed["spawn"] == probed["package"]
    assert probed["forkserver"] == probed["package"]
    assert probed["nested"] == probed["package"]
    assert probed["relaunched"].startswith("hangbisect ")
    # What others get is the standard library's, or in a checkout what offers the same.
    standard = str(Path(sysconfig.get_path("stdlib")) / "bisect.py")
    facade = str(checkout / "bisect" / "__init__.py")
    in_checkout = way.folder == checkout and "-m" in way.command
    assert probed["bisect"] in ({standard, facade} if in_checkout else {standard})


# ---- the real thing ---------------------------------------------------------------------------


def verdict_of(run: Path) -> dict[str, object]:
    verdict: dict[str, object] = json.loads((run / "verdict.json").read_text())
    return verdict


def test_lightnings_own_launch_starts_the_other_rank_and_both_their_workers(
    bare: Interpreter, start: Start, environ: dict[str, str], checkout: Path, tmp_path: Path
) -> None:
    """Where we were never installed. Installed we are in test_startup_pipeline.py: the other rank,
    and workers that are spawned.
    """
    command = (bare.python, "-m", "bisect")
    job = ("--fast-dev-run", "1", "--strategy", "ddp", "--devices", "2", "--wandb", "off")
    workers = ("--num-workers", "1", "--worker-start", "forkserver", "--run-dir", tmp_path / "run")
    output = output_of(start(*command, *job, *workers, cwd=checkout, env=environ))
    assert "[R1/2]" in output
    assert REACHED["training"] in output
    assert verdict_of(tmp_path / "run")["outcome"] == "ok"


# ---- not started ------------------------------------------------------------------------------

ASK = (
    "import sys; before = sorted(sys.modules); import bisect;print(bisect.__file__); print(*before)"
)


@needs_wheel
@pytest.mark.parametrize(
    "words", [["-c", ASK], ["-m", "asker"], ["asker.py"], ["-masker", "-m", "bisect"]]
)
def test_a_process_that_does_not_say_minus_m_bisect_never_notices_us(
    words: list[str],
    bare: Interpreter,
    installed: Interpreter,
    start: Start,
    environ: dict[str, str],
    tmp_path: Path,
) -> None:
    (tmp_path / "asker.py").write_text(ASK)
    answers = [
        output_of(start(made.python, *words, cwd=tmp_path, env=environ)).splitlines()
        for made in (bare, installed)
    ]
    assert answers[0] == answers[1]
    file, modules = answers[1]
    assert file == str(Path(sysconfig.get_path("stdlib")) / "bisect.py")
    assert "hangbisect" not in modules


@needs_wheel
def test_the_line_at_the_start_of_every_interpreter_imports_nothing_but_sys(
    installed: Interpreter,
) -> None:
    lines = (installed.site_packages / PTH).read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("import sys;")


@needs_wheel
def test_uninstalling_gives_minus_m_bisect_back(
    wheel: Path, start: Start, environ: dict[str, str], tmp_path: Path
) -> None:
    made = make(tmp_path / "venv", wheel=wheel)
    (made.site_packages / "a.pth").unlink()
    assert (made.site_packages / PTH).exists()
    pip(made, "uninstall", "--quiet", "--yes", "hangbisect")
    assert not list(made.folder.rglob("hangbisect*"))
    assert output_of(start(made.python, "-m", "bisect", cwd=tmp_path, env=environ)) == ""


@needs_wheel
def test_the_core_installs_next_to_another_torch_and_changes_no_package(
    wheel: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    made = Interpreter(tmp_path / "venv")
    for name, version in (
        ("torch", "2.1.0"),
        ("psutil", "5.9.0"),
        ("py_spy", "0.4.0"),
        ("jinja2", "3.0.0"),
    ):
        there = made.site_packages / f"{name}-{version}.dist-info"
        there.mkdir()
        (there / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        (there / "RECORD").touch()
    report = tmp_path / "report.json"
    pip(made, "install", "--quiet", "--no-index", "--dry-run", "--report", report, wheel)
    changed = [item["metadata"]["name"] for item in json.loads(report.read_text())["install"]]
    assert changed == ["hangbisect"]
