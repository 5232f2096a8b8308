"""What only a GPU can show, on one GPU: whether our evidence is right, and what it costs.

    python benchmarks/gpu_checks.py [--out DIR] [--limit 570] [--cpu] [--list] [NAME ...]

Each check (gpu_check_list.py) runs in a process of its own, with a deadline of its own; what it
started is ended with it. The table is written to DIR/table.md and DIR/results.json after each
check, and what was recorded (verdicts, answers of NVML and of NCCL's RAS service, dumps of torch's
recorder, NCCL's and its watchdog's lines) to DIR/NAME/: fixtures for tests where there is no GPU.

Without a GPU every row says "not run", a sentence says so once more, and the exit status is 3. With
--cpu those checks run that have a stand-in on the CPU: their rows say so, and nothing is shown of a
GPU. Exit status: 0 if all that ran is right, 1 if something is wrong or had no time, 3 if nothing
ran.

It needs torch with CUDA, and py-spy; it runs from a checkout that is not installed as well. What
else a check needs (`pip install -e '.[pipelines]'` brings it) and is not there, its row says. Aim:
below ten minutes in all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jobs
from gpu_check_jobs import Given, is_there, use_checkout
from gpu_check_list import CHECKS, Check

MARK = "GPU_CHECK"  # in the environment of all that a check started
NOTHING_RAN = 3
_ASK_LIMIT = 60.0  # seconds for torch to say what there is: its import takes ten
_LEAST = 5.0  # seconds in which a check is worth to be started
_GOES = 5.0  # seconds for killed processes to be gone
_WIDTHS = (15, 9, 7)
# What torch and the driver say of this machine; a driver that hangs hangs this program alone.
_MACHINE = """
import json, os, torch
found = {"torch": torch.__version__, "cuda": torch.version.cuda, "nccl": "", "gpus": []}
found["distributed"] = torch.distributed.is_available()
if torch.cuda.is_available():
    for n in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(n)
        found["gpus"].append([about.name, about.total_memory, f"{about.major}.{about.minor}"])
    if torch.distributed.is_nccl_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Row:
    """What came of a check. `result`: "right", "wrong", "no answer" or "not run"."""

    name: str
    result: str
    seconds: float
    saw: str
    figures: Mapping[str, Any]


# ---- what there is -------------------------------------------------------------------------------


def ask_machine(limit: float = _ASK_LIMIT) -> dict[str, Any]:
    """Return what torch says of this machine, and why not if it says nothing; never raises."""
    about: dict[str, Any] = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "driver": _read_driver(),
        "gpus": [],
    }
    try:
        ran = subprocess.run(
            (sys.executable, "-c", _MACHINE),
            capture_output=True,
            text=True,
            timeout=limit,
            check=True,
        )
        return {**about, **json.loads(ran.stdout)}
    except subprocess.TimeoutExpired:
        return {**about, "why": f"torch and the driver gave no answer in {limit:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {**about, "why": (error.stderr.strip().splitlines() or ["torch failed"])[-1]}
    except (OSError, ValueError) as error:
        return {**about, "why": str(error)}


def _read_driver() -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    return ""


def why_not(check: Check, about: Mapping[str, Any], on_cpu: bool) -> str:
    """Return why a check cannot run here, "" if it can."""
    if on_cpu and not check.stand_in:
        return "no stand-in on the CPU"
    if not on_cpu and not about["gpus"]:
        why = about.get("why") or f"torch {about.get('torch', '')} sees none"
        return f"no GPU here ({why})"
    if not on_cpu and check.needs_nccl and not about.get("nccl"):
        return f"torch {about['torch']} has no NCCL"
    lacks = [name for name in check.needs if not is_there(name)]
    return f"not installed here: {', '.join(lacks)}" if lacks else ""


# ---- one check in its own process ----------------------------------------------------------------


def run_check(check: Check, out: Path, limit: float, on_cpu: bool) -> Row:
    """Run a check in its own process, `limit` seconds at most; return its row."""
    command = [sys.executable, str(Path(__file__)), "--alone", check.name, "--out", str(out)]
    return run_apart(check.name, [*command, *(["--cpu"] if on_cpu else [])], out, limit)


def run_apart(name: str, command: Sequence[str], out: Path, limit: float) -> Row:
    """Start the process of a check, wait `limit` seconds at most, end all that it started, and
    return its row: what it wrote to result.json in its folder.
    """
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    mark = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    began = time.monotonic()
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(
            command,
            env={**os.environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        is_late = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            is_late = True
        seconds = time.monotonic() - began
        left = end_marked(mark, process)
    told = _read_result(result)
    rest = f"; still there: {', '.join(map(str, left))}" if left else ""
    if is_late:
        return Row(name, "no answer", seconds, f"none in {limit:.0f} s{rest}", {})
    if told is None:
        why = _last_line(folder / "said.txt") or f"status {process.returncode}"
        return Row(name, "wrong", seconds, f"it failed: {why}{rest}", {})
    return Row(name, told["result"], seconds, told["saw"] + rest, told["figures"])


def end_marked(mark: str, process: subprocess.Popen[bytes]) -> list[int]:
    """Kill all that has a mark in its environment; return who is still there after a while, as one
    that the driver holds in the kernel is.
    """
    until = time.monotonic() + _GOES
    while True:
        there = jobs.find_marked(mark, process.pid, MARK)
        for pid in there:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        if not there or time.monotonic() > until:
            return there
        time.sleep(0.05)


def _read_result(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    except (OSError, ValueError):
        return None


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def run_alone(name: str, out: Path, on_cpu: bool) -> int:
    """Run a check in this process, and write what came of it."""
    check = next(one for one in CHECKS if one.name == name)
    folder = out / name
    use_checkout()
    try:
        found = check.look(Given(folder, on_cpu))
        told = {"result": "right" if found.right else "wrong"} | asdict(found)
    except Exception as error:
        traceback.print_exc()
        told = {"result": "wrong", "saw": f"{type(error).__name__}: {error}", "figures": {}}
    (folder / "result.json").write_text(json.dumps(told))
    return 0


# ---- the table -----------------------------------------------------------------------------------


def write_table(out: Path, about: Mapping[str, Any], rows: Sequence[Row], on_cpu: bool) -> None:
    """Write what is known so far."""
    where = "stand-ins on the CPU: nothing of a GPU is shown" if on_cpu else name_gpus(about)
    lines = [f"GPU checks: {where}", ""]
    lines += [f"- {key}: {value}" for key, value in about.items() if key != "gpus" and value]
    lines += ["", "| check | result | s | what was seen |", "|---|---|---|---|"]
    for row in rows:
        figures = ", ".join(f"{key} {value}" for key, value in row.figures.items())
        saw = f"{row.saw} ({figures})" if figures else row.saw
        cell = saw.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {row.name} | {row.result} | {row.seconds:.1f} | {cell} |")
    (out / "table.md").write_text("\n".join(lines) + "\n")
    found = {"machine": about, "on_cpu": on_cpu, "rows": [asdict(row) for row in rows]}
    (out / "results.json").write_text(json.dumps(found, indent=1) + "\n")


def name_gpus(about: Mapping[str, Any]) -> str:
    """Return the GPUs in words."""
    names = [f"{name}, {total / 2**30:.0f} GiB" for name, total, _ in about["gpus"]]
    return "; ".join(names) or "no GPU"


def _say(row: Row) -> None:
    figures = ", ".join(f"{key} {value}" for key, value in row.figures.items())
    cells = jobs.wide((row.name, row.result, row.seconds), _WIDTHS)
    print(f"{cells}  {row.saw}{f' ({figures})' if figures else ''}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="checks (all of them)")
    parser.add_argument("--out", type=Path, default=Path("gpu-checks"), help="where all goes")
    parser.add_argument("--limit", type=float, default=570.0, help="seconds for all together")
    parser.add_argument("--cpu", action="store_true", help="stand-ins on the CPU, where there are")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--alone", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.resolve()
    if options.alone:
        return run_alone(options.alone, out, options.cpu)
    unknown = set(options.names) - {check.name for check in CHECKS}
    if unknown:
        parser.error(f"no such check: {', '.join(sorted(unknown))} (--list has them)")
    chosen = [check for check in CHECKS if not options.names or check.name in options.names]
    if options.list:
        for check in chosen:
            print(f"{check.name:15}  {check.limit:4.0f} s  {check.shows}")
        return 0
    return run_all(chosen, out, options.limit, options.cpu)


def run_all(chosen: Sequence[Check], out: Path, limit: float, on_cpu: bool) -> int:
    """Run the checks one after the other; return the exit status."""
    until = time.monotonic() + limit
    jobs.heed_signals()
    out.mkdir(parents=True, exist_ok=True)
    about = ask_machine()
    print(f"{name_gpus(about)}; results in {out}", flush=True)
    rows: list[Row] = []
    for check in chosen:
        no = why_not(check, about, on_cpu)
        left = until - time.monotonic()
        if no:
            row = Row(check.name, "not run", 0.0, no, {})
        elif left < _LEAST:
            row = Row(check.name, "no answer", 0.0, f"the {limit:.0f} s were over before it", {})
        else:
            row = run_check(check, out, min(check.limit, left), on_cpu)
        rows.append(row)
        _say(row)
        write_table(out, about, rows, on_cpu)
    ran = [row for row in rows if row.result != "not run"]
    if not ran:
        print(f"None of {len(rows)} checks has run: nothing is known of a GPU.", flush=True)
        return NOTHING_RAN
    return int(any(row.result != "right" for row in ran))


if __name__ == "__main__":
    sys.exit(main())
