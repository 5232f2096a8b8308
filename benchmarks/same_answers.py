"""Whether two installations answer thirty runs in the same way: lines, statuses, files, fields.

Each run is made once with each of two interpreters that have hangbisect. Numbers, hosts, pids,
folders and frames of our own code are taken out, for these differ between any two starts, or are
not for users; what is then left of lines, exit statuses, names of files and fields of JSON files is
compared. What is meant to differ stands in `wanted_differences.py`, with the reason. What else
differs is made once more with both, and only what differs in both rounds is printed.

    python benchmarks/same_answers.py BEFORE_PYTHON AFTER_PYTHON [NAME ...] [--keep DIR] [--all]
    python benchmarks/same_answers.py --again DIR [NAME ...] [--all]
    python benchmarks/same_answers.py BEFORE_PYTHON AFTER_PYTHON --read --keep DIR ["read NAME" ...]

What is kept in DIR is not made again. `--again` starts nothing at all. `--read` has both read each
run folder that the first one has left there: show, report, bundle, compare, merge. Status 1:
something differs that is not explained.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jobs
from wanted_differences import explain_difference

LIMIT = 400.0  # seconds for one command
_TORCHRUN = "{python} -m torch.distributed.run --nproc_per_node=2"
_STARTUP = f"{_TORCHRUN} -m bisect --fast-dev-run 1 --run-dir run"
_ALONE = "{python} -m bisect --fast-dev-run 1 --run-dir run"
_RUN = "{hangbisect} run --run-dir run --stall 3 --on-hang end --"
_QUICK = "--stall 3 --timeout 30"  # what nothing proves to hang is a hang once its step is late

_LOCKED = """
    import fcntl, sys
    file = open("held.lock", "a")
    other = open("held.lock", "a")
    fcntl.flock(file, fcntl.LOCK_EX)
    print("takes it again", flush=True)
    fcntl.flock(other, fcntl.LOCK_EX)
"""
_GLOO = """
    import fcntl, os, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    file = open("held.lock", "a")
    if os.environ["RANK"] == "0":
        fcntl.flock(file, fcntl.LOCK_EX)
    dist.all_reduce(torch.ones(4))
    if os.environ["RANK"] == "1":
        fcntl.flock(file, fcntl.LOCK_EX)
    dist.all_reduce(torch.ones(4))
"""
_SCRIPTS = {
    "locked.py": _LOCKED,
    "gloo.py": _GLOO,
    "fails.py": "print('begins')\nraise ValueError('no such thing')\n",
    "three.py": "import sys\nprint('leaves')\nsys.exit(3)\n",
    "fine.py": "print('all is well')\n",
    "scenarios.yaml": """
        title: two settings
        pipeline: startup
        arguments: --until tokenizer --stall 3 --inject sleep@tokenizer:rank0
        launcher: python
        settings:
          - name: as it is
          - name: nobody asks the hub
            toggles: {hub: offline}
        """,
    "dump.txt": """
        Process 4711: python train.py --rank 0
        Python v3.11.7 (/usr/bin/python3.11)

        Thread 4711 (idle): "MainThread"
            read (ssl.py:1166)
            init (wandb/sdk/wandb_init.py:1536)
            <module> (train.py:5)
        """,
}


@dataclass(frozen=True)
class Run:
    """Commands, one after the other in one folder. The last one may use what the others left."""

    name: str
    commands: tuple[str, ...]
    given: Path | None = None  # what an earlier run has left, and is to be there


def _runs() -> Iterator[Run]:
    hang = f"{_STARTUP} {_QUICK} --inject"
    yield Run("ok", (_STARTUP,))
    yield Run("ok, one rank, JSON", (f"{_ALONE} --until tokenizer --json",))
    yield Run("ok, observed", (f"{_STARTUP} --barriers observe --plain",))
    yield Run("hang, sleep", (f"{hang} sleep@accelerator:rank1",))
    yield Run("hang, the GIL", (f"{hang} gil@model:rank0",))
    yield Run("hang, native", (f"{hang} native@data_module:rank1",))
    yield Run("hang, stopped", (f"{hang} stop@accelerator:rank1",))
    yield Run("hang, in a phase", (f"{hang} sleep@setup:rank1",))
    reported = f"timeout -s TERM 60 {hang} sleep@model:rank0 --on-hang report"  # it goes on
    yield Run("hang, reported", (reported,))
    yield Run("slow", (f"{hang} slow@logs_directory:rank0 --timeout logs_directory=2",))
    yield Run("crash, raised", (f"{_STARTUP} --inject raise@model:rank1",))
    yield Run("crash, killed", (f"{_STARTUP} --inject kill@model:rank1",))
    yield Run("left with 0", (f"{_STARTUP} --inject exit@trainer:rank1",))
    yield Run("own, ok", (f"{_RUN} {{python}} fine.py",))
    yield Run("own, status 3", (f"{_RUN} {{python}} three.py",))
    yield Run("own, crash", (f"{_RUN} {{python}} fails.py",))
    yield Run("own, hang", (f"{_RUN} {{python}} locked.py",))
    yield Run("own, two ranks", (f"{_RUN} {_TORCHRUN} gloo.py",))
    yield Run(
        "attach",
        (
            "{python} locked.py & pid=$!; sleep 3; "
            "{hangbisect} attach $pid --run-dir run; status=$?; kill $pid; exit $status",
        ),
    )
    yield Run(
        "isolate",
        (
            "{hangbisect} isolate --run-dir run --only hub,make_logs_dir -- "
            f"{_TORCHRUN} -m bisect --fast-dev-run 1 --until model --stall 3"
            " --inject sleep@tokenizer:rank1",
        ),
    )
    yield Run("matrix", ("{hangbisect} matrix scenarios.yaml --run-dir run",))
    yield Run("merge", ("{hangbisect} merge dump.txt", "{hangbisect} merge --json dump.txt"))
    left = f"{hang} sleep@accelerator:rank1"  # both have imported by then: none still comes
    yield Run("show", (f"{left} >/dev/null 2>&1; {{hangbisect}} show run",))
    yield Run("report", (f"{left} >/dev/null 2>&1; {{hangbisect}} report run",))
    yield Run("bundle", (f"{left} >/dev/null 2>&1; {{hangbisect}} bundle run --output bundle.zip",))
    yield Run(
        "compare",
        (
            f"{_ALONE} --until model >/dev/null 2>&1; mv run one",
            f"{_ALONE} --until model --hub offline >/dev/null 2>&1",
            "{hangbisect} compare one run",
        ),
    )
    yield Run("toggles", ("{hangbisect} toggles", "{hangbisect} toggles hub"))
    yield Run("causes", ("{hangbisect} causes", "{hangbisect} causes service-silent"))
    yield Run(
        "help",
        tuple(
            f"{{hangbisect}} {command} --help"
            for command in ("", "run", "attach", "isolate", "matrix", "doctor", "show", "merge")
        ),
    )
    yield Run(
        "bad input",
        (
            f"{_ALONE} --inject nothing@model",
            f"{_ALONE} --until nowhere",
            "{hangbisect} show nowhere",
            "{hangbisect} matrix nowhere.yaml",
            "{hangbisect} merge nowhere.txt",
            "{hangbisect} run",
            "{hangbisect} isolate --only nothing -- true",
        ),
    )


_READ = tuple(
    f"{{hangbisect}} {words}"
    for words in (
        *("show run", "show run --json", "report run --output made", "report log.txt"),
        *("report run --json --anonymous --output masked", "bundle run --output bundle.zip"),
        *("compare run run", "compare --json run run", "merge run/stacks/*.txt"),
    )
)


def _read_runs(kept: Path) -> Iterator[Run]:
    """Yield what reads the run folders that the first interpreter has left in `kept`."""
    for run in _runs():
        given = kept / run.name.replace(" ", "-") / "before-0"
        if (given / "run").is_dir():
            yield Run(f"read {run.name}", _READ, given)


@dataclass(frozen=True)
class Answer:
    """What one run left, without what differs between any two starts."""

    statuses: tuple[int, ...]
    lines: frozenset[str]
    files: frozenset[str]
    fields: dict[str, str]  # path in a JSON file -> its values


def make_answer(run: Run, python: str, folder: Path) -> None:
    """Make a run with an interpreter, in a folder that is not there yet, and leave all there."""
    with tempfile.TemporaryDirectory(prefix="same-") as base:
        here = Path(base)
        for name, text in _SCRIPTS.items():
            (here / name).write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        if run.given is not None:
            shutil.copytree(run.given, here, dirs_exist_ok=True, symlinks=True)
            earlier = json.loads(run.given.with_suffix(".json").read_text(encoding="utf-8"))
            (here / "log.txt").write_text(earlier["printed"], encoding="utf-8")
        else:
            earlier = None
        words = {"python": python, "hangbisect": str(Path(python).with_name("hangbisect"))}
        statuses, printed = [], []
        for command in run.commands:
            status, text = _run(command.format(**words), here)
            statuses.append(status)
            printed.append(text)
        if run.given is None:
            time.sleep(3)  # reports are made after the end of the ranks
        made = {
            "statuses": statuses,
            "printed": "\n".join(printed),
            "folders": [base, *(earlier["folders"] if earlier else ())],
            "pythons": [python, *(earlier["pythons"] if earlier else ())],
            "packages": [_find_package(python), *(earlier["packages"] if earlier else ())],
        }
        shutil.copytree(here, folder, ignore_dangling_symlinks=True)
    folder.with_suffix(".json").write_text(json.dumps(made), encoding="utf-8")


def _run(command: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**jobs.clean_environ(), "HOME": str(folder), "COLUMNS": "100", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def _find_package(python: str) -> str:
    command = [python, "-c", "import hangbisect; print(hangbisect.__path__[0])"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def read_answer(folder: Path) -> Answer:
    """Return what `make_answer` has left."""
    made = json.loads(folder.with_suffix(".json").read_text(encoding="utf-8"))
    packages = tuple(made["packages"])
    neutral = _make_neutral(made["folders"], made["pythons"], packages)
    files = {
        neutral(str(path.relative_to(folder)))
        for path in folder.rglob("*")
        if path.is_file() and path.name not in _SCRIPTS
    }
    printed, objects = _split_printed(made["printed"])
    found_in = [("printed", one) for one in objects]
    for path in sorted(folder.rglob("*.json")):
        name = neutral(str(path.relative_to(folder)))
        found_in.append((name, json.loads(path.read_text(encoding="utf-8"))))
    fields: dict[str, set[str]] = {}
    for name, value_of_file in found_in:
        for field, value in _walk(value_of_file, packages):
            found = fields.setdefault(f"{name}: {field}", set())
            found.update(map(neutral, value.splitlines()))
    values = {field: " | ".join(sorted(found)) for field, found in fields.items()}
    lines = frozenset(map(neutral, printed))
    for line in lines:  # what a help names is a field; how it is explained is a line
        for option in _OPTION.findall(line):
            values[f"printed: {option}"] = ""
    return Answer(tuple(made["statuses"]), lines, frozenset(files), values)


_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]*)")


def _split_printed(text: str) -> tuple[list[str], list[Any]]:
    """Return the lines of what was printed, and the JSON objects among them."""
    lines: list[str] = []
    objects: list[Any] = []
    while text:
        if text.startswith("{"):
            with contextlib.suppress(ValueError):
                found, end = json.JSONDecoder().raw_decode(text)
                objects.append(found)
                text = text[end:].lstrip()
                continue
        line, _, text = text.partition("\n")
        lines.append(line)
    return lines, objects


def _make_neutral(
    folders: Sequence[str], pythons: Sequence[str], packages: Sequence[str]
) -> Callable[[str], str]:
    names = {one.name for package in packages for one in Path(package).rglob("*.py")}
    ours = "|".join(re.escape(name) for name in sorted(names - _SCRIPTS.keys() - {"train.py"}))
    taken_out = [
        (_any_of(folders), "FOLDER"),
        (_any_of(str(Path(python).parent.parent) for python in pythons), "ENV"),
        (_any_of(packages), "PACKAGE"),
        (_any_of(str(Path(package).parent) for package in packages), "CHECKOUT"),
        # A frame of our own code: "walk_pipeline (walk.py:33)", "walk (PACKAGE/rank/walk.py:33)".
        (re.compile(rf"[\w.<>]+ \((?:PACKAGE/)?(?:[\w/]+/)?(?:{ours}):\d+\)"), "OUR FRAME"),
        (re.compile(r"[\w.<>]+ \(<frozen importlib\._bootstrap> hangbisect:\d+\)"), "OUR FRAME"),
        (re.compile(r'File "PACKAGE/[^"]+", line \d+, in \w+'), "OUR FRAME"),
        (re.compile(rf"\b{re.escape(socket.gethostname())}\b"), "HOST"),
        (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:_\w+)?"), "UUID"),
        (re.compile(r"\b(torchelastic|offline-run-\d+)_\w+(?:-\w+)?"), r"\1"),
        (re.compile(r"\b(run[- ])[a-z0-9]{8}\b"), r"\1ID"),  # of W&B
        (re.compile(r"/tmp\w{8}/"), "/TMP/"),
        (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{6,40}\b"), "HEX"),
        (re.compile(r"\b\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|\+\d\d:\d\d)?"), "TIME"),
        (re.compile(r"\d+(?:\.\d+)?"), "0"),
        (re.compile(r"(?:0, )+0\b"), "0"),
        (re.compile(r"\s+"), " "),
    ]

    def neutral(text: str) -> str:
        for pattern, word in taken_out:
            text = pattern.sub(word, text)
        return text.strip()

    return neutral


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))


def _walk(value: Any, packages: tuple[str, ...], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every leaf of a JSON value with its path; members of a list share one. A frame of our
    own code has its names left out.
    """
    if isinstance(value, dict):
        if str(value.get("file")).startswith(packages):
            value = {**value, "name": "OURS", "file": "OURS"}
        for key, inner in value.items():
            yield from _walk(inner, packages, f"{path}.{key if not str(key).isdigit() else 0}")
    elif isinstance(value, list):
        yield f"{path}[]", "list"
        for inner in value:
            yield from _walk(inner, packages, f"{path}[]")
    else:
        yield path, "number" if isinstance(value, int | float) else str(value)


def find_differences(before: Answer, after: Answer) -> list[str]:
    """Return what differs, a line each."""
    found = []
    if before.statuses != after.statuses:
        found.append(f"status {before.statuses} -> {after.statuses}")
    for what, old, new in (
        ("line", before.lines, after.lines),
        ("file", before.files, after.files),
        ("field", frozenset(before.fields), frozenset(after.fields)),
    ):
        found += [f"- {what} {one}" for one in sorted(old - new)]
        found += [f"+ {what} {one}" for one in sorted(new - old)]
    for field in sorted(set(before.fields) & set(after.fields)):
        was, now = (set(one.fields[field].split(" | ")) for one in (before, after))
        if was != now:
            lost, come = " | ".join(sorted(was - now)), " | ".join(sorted(now - was))
            found.append(f"value {field}: {lost} -> {come}")
    return found


def compare_run(run: Run, folder: Path, pythons: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the differences of one run, those that are wanted and the others. Without `pythons`
    nothing is started: what is kept in `folder` is compared.
    """
    wanted: set[str] = set()
    left: set[str] | None = None
    for turn in range(2):
        sides = [folder / f"{side}-{turn}" for side in ("before", "after")]
        for place, python in zip(sides, pythons, strict=False):
            if not place.with_suffix(".json").exists():  # kept by an earlier call
                make_answer(run, os.path.abspath(python), place)
        if not all(side.with_suffix(".json").exists() for side in sides):
            break
        found = set(find_differences(*map(read_answer, sides)))
        explained = {one for one in found if explain_difference(one, run.name)}
        wanted |= explained
        left = found - explained if left is None else left & (found - explained)
        if not left:
            break
    return wanted, left if left is not None else {"there is nothing to compare"}


def main() -> int:
    """Print what differs in each run; return 1 if anything does without a reason."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="PYTHON PYTHON NAME ...")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep transcripts and run folders")
    parser.add_argument("--again", type=Path, metavar="DIR", help="compare what is kept there")
    parser.add_argument(
        "--read", action="store_true", help="read the first one's folders in --keep DIR with both"
    )
    parser.add_argument("--all", action="store_true", help="print the wanted differences too")
    options = parser.parse_intermixed_args()
    count = 0 if options.again else 2
    pythons, names = options.words[:count], options.words[count:]
    if len(pythons) != count:
        parser.error("two interpreters are needed, or --again DIR")
    jobs.heed_signals()
    reasons: Counter[str] = Counter()
    every = list(_read_runs(options.keep or options.again) if options.read else _runs())
    runs = [run for run in every if not names or run.name in names]
    unexplained = 0
    with contextlib.ExitStack() as stack:
        base = options.again or options.keep
        if base is None:
            base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="same-answers-")))
        for run in runs:
            wanted, left = compare_run(run, base / run.name.replace(" ", "-"), pythons)
            reasons.update(explain_difference(one, run.name) for one in wanted)
            unexplained += len(left)
            print(f"{run.name:22} {len(wanted):3} wanted, {len(left):3} unexplained", flush=True)
            for line in sorted(left | (wanted if options.all else set())):
                print(f"    {line[:400]}", flush=True)
    print()
    for why, number in reasons.most_common():
        print(f"{number:6}  {why}")
    print(f"{len(runs)} runs: {reasons.total()} differences are wanted, {unexplained} unexplained")
    return int(unexplained > 0)


if __name__ == "__main__":
    raise SystemExit(main())
