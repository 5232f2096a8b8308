"""The checks of gpu_checks.py: what each starts, and what it must show. Each runs in a process of
its own that may be killed at any moment; what it records goes to its folder.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_check_programs as programs
import jobs
from gpu_check_jobs import (
    HANGBISECT,
    KEPT,
    PY_SPY,
    THERE,
    Given,
    attach,
    describe,
    find_times,
    keep_files,
    start_job,
    wait_for,
    watch,
)

_SPINS, _WORLD = 3, 8
_FAR_FROM_LIMIT = 0.6  # of a GPU's power limit: below this a busy GPU waits (diagnosis/causes/gpu)


@dataclass(frozen=True)
class Seen:
    """What a check saw."""

    right: bool
    saw: str
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A check; `limit` in seconds."""

    name: str
    shows: str
    look: Callable[[Given], Seen]
    limit: float
    needs_nccl: bool = False
    stand_in: bool = False  # it shows something on the CPU as well
    needs: tuple[str, ...] = ()  # modules that must be there, and the program py-spy


# ---- hangs ---------------------------------------------------------------------------------------


def check_spin(given: Given) -> Seen:
    """One of eight gloo ranks on one GPU waits for a kernel that never ends."""
    words = (programs.SPIN, str(_SPINS))
    with start_job(given, *words, ranks=_WORLD, name="spin") as (running, here):
        wait_for(running, here, _WORLD)
        found = describe(attach(running, here))
    right = found["named"] == [_SPINS]
    return Seen(right, f"rank {_SPINS} stands in .item() behind its kernel", found)


def check_never_comes(given: Given) -> Seen:
    """NCCL makes a communicator for two, and the second rank stands in code of its own."""
    with start_job(
        given,
        programs.NEVER_COMES,
        ranks=2,
        under=watch("--stall", "8", "--on-hang", "report"),
        environ={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(given.folder / "nccl-%h-%p.txt")},
        name="init",
    ) as (running, here):
        wait_for(running, here, 2)
        _record_ras(given.folder, "initialising")
        verdict = jobs.until(lambda: jobs.verdict_of(here / "run"), 60.0, running.process)
        later = describe(attach(running, here, 40.0))
    found = describe(verdict or {})
    right = found["named"] == [1] and later["named"] == [1]
    return Seen(right, "rank 1 never comes", {**found, "attach names": later["named"]})


def check_zoo(given: Given) -> Seen:
    """The cases of the zoo that need a GPU: a kernel, NCCL in a world of one, CUDA after a fork."""
    rows = given.folder / "rows.json"
    words = ("--jobs", "3", "--json", str(rows), "--keep", str(given.folder / "kept"))
    command = (*HANGBISECT, "zoo", "run", "K01", "K02", "K03", *words)
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    (given.folder / "zoo.txt").write_text(ran.stdout + ran.stderr)
    cases = json.loads(rows.read_text())["cases"]
    wrong = [
        row["id"]
        for row in cases
        if row["skipped"] or not row["located"] or row["cause"] == "wrong" or row["left"]
    ]
    right = not wrong and len(cases) == 3 and ran.returncode == 0
    return Seen(right, "K01, K02, K03", {"wrong": wrong} if wrong else {})


def check_memory(given: Given) -> Seen:
    """A rank asks for twice the memory of the GPU."""
    found = _run_out_of_memory(given, "2.0", "alone")
    right = found["named"] == [1] and found["cause"] == "cuda-out-of-memory"
    return Seen(right, "rank 1 asks for too much", found)


def check_taken_memory(given: Given) -> Seen:
    """A process of somebody else has the GPU's memory, and a rank asks for a tenth of it."""
    with start_job(given, programs.HOLDER, name="holder") as (holder, here):
        wait_for(holder, here)
        found = _run_out_of_memory(given, "0.1", "taken")
        pid = holder.process.pid
    right = found["named"] == [1] and found["cause"] == "cuda-out-of-memory"
    verdict = (given.folder / "taken-run-verdict.json").read_text()
    words = "is named" if f"process {pid} has" in verdict else "is not named (a container?)"
    return Seen(right, f"process {pid}, which has the memory, {words}", found)


def _run_out_of_memory(given: Given, share: str, name: str) -> dict[str, Any]:
    with start_job(given, programs.OUT_OF_MEMORY, share, ranks=2, under=watch(), name=name) as (
        running,
        here,
    ):
        jobs.until(lambda: running.process.poll() is not None, 60.0)
        return describe(jobs.verdict_of(here / "run"))


# ---- what is read --------------------------------------------------------------------------------


def check_nvml(given: Given) -> Seen:
    """NVML's answers of a GPU that is in use, spins, and computes; and who uses it."""
    shares: dict[str, Any] = {}
    wrong: list[str] = []
    for way in ("idle", "spin", "sums"):
        with start_job(given, programs.LOAD, way, name=way) as (running, here):
            wait_for(running, here)
            began = time.monotonic()
            answers = [_ask_nvml(given.folder / f"nvml-{way}-{n}.json") for n in range(3)]
            shares[f"{way} s"] = round((time.monotonic() - began) / 3, 2)
        gpus = [max(gpus, key=lambda gpu: gpu.busy or 0.0) for gpus in answers if gpus]
        if len(gpus) < 3:
            wrong.append(f"{way}: no answer")
            continue
        one = gpus[-1]
        power = (one.power or 0.0) / (one.power_limit or 1.0)
        shares[f"{way} busy"], shares[f"{way} power"] = one.busy, round(power, 2)
        wrong += [f"{way}: {gpu.said}" for gpu in gpus[:1] if gpu.said]
        if one.pids and running.process.pid not in one.pids:
            wrong.append(f"{way}: process {running.process.pid} is not among {one.pids}")
        # In a container NVML may tell nobody, or in the host's numbers.
        shares[f"{way} users"] = "told" if one.pids else "host" if one.host_pids else "none told"
        if way != "idle" and (one.busy or 0.0) < 0.95:
            wrong.append(f"{way}: busy {one.busy}")
        if (way == "spin") != (power < _FAR_FROM_LIMIT) and way != "idle":
            wrong.append(f"{way}: {power:.2f} of its power")
    _record_tools(given.folder)
    return Seen(not wrong, "; ".join(wrong) or "who uses it, how busy, at what power", shares)


def _ask_nvml(path: Path) -> Any:
    """Ask the probe, keep what it printed, and return the GPUs in it."""
    from hangbisect.evidence.machine import NVML_PROBE, parse_gpus

    command = (sys.executable, "-P", str(NVML_PROBE), "--limit", "4")
    ran = subprocess.run(command, capture_output=True, timeout=20, check=False)
    path.write_bytes(ran.stdout)
    gpus, missing = parse_gpus(ran.stdout)
    if missing:
        path.with_suffix(".missing.txt").write_text("\n".join(missing))
    return gpus


def _record_tools(folder: Path) -> None:
    """Keep what NVIDIA's own tools and our doctor say of the machine."""
    for name, command in {
        "nvidia-smi-q.xml": ("nvidia-smi", "-q", "-x"),
        "nvidia-smi-topo.txt": ("nvidia-smi", "topo", "-m"),
        "doctor.json": (*HANGBISECT, "doctor", "--json", "--all"),
    }.items():
        with suppress(OSError, subprocess.TimeoutExpired):
            ran = subprocess.run(command, capture_output=True, timeout=30, check=False)
            (folder / name).write_bytes(ran.stdout or ran.stderr)


def check_recorder(given: Given) -> Seen:
    """Torch's flight recorder over its pipe, and its dump and the watchdog's words at a real
    time-out.
    """
    from hangbisect.base.rank_facts import RankFacts
    from hangbisect.evidence.gpus.recorder_queries import ask_recorders
    from hangbisect.evidence.gpus.watchdog_messages import read_watchdog_messages

    dumps = given.folder / "dumps"
    dumps.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    environ = {
        **{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        **{"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(dumps / "trace_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(dumps / "trace_"),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(dumps / "pipe"),
        **{"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(given.folder / "nccl-%h-%p.txt")},
    }
    logs: dict[Any, Any] = {}
    with start_job(given, programs.BEHIND, "25", environ=environ, name="recorder") as (
        running,
        here,
    ):
        wait_for(running, here)
        ask_recorders([RankFacts(0, pid=running.process.pid, environment=environ)], logs, 8.0)
        keep_files(dumps, given.folder, ("trace_*",), "asked-")
        for asked in dumps.glob("trace_*"):
            asked.unlink()  # what lies there later was dumped at the time-out
        jobs.until(lambda: running.process.poll() is not None, 60.0)
        said = running.said()
    keep_files(dumps, given.folder, ("trace_*",), "timed-out-")
    told = read_watchdog_messages(said.splitlines())
    wrong = [
        *(["the pipe gave no dump"] if 0 not in logs else _judge_log(logs[0], "asked")),
        *_judge_dump(given.folder / "timed-out-trace_0"),
        *([] if any(one.operations for one in told) else ["the watchdog's lines do not tell"]),
    ]
    figures = {"lines": len(told), "status": running.process.returncode}
    return Seen(not wrong, "; ".join(wrong) or "asked, dumped and printed", figures)


def _judge_dump(path: Path) -> list[str]:
    from hangbisect.evidence.gpus.flight_recorder import load_dump, parse_dump

    if not path.is_file():
        return ["no dump at the time-out"]
    log = parse_dump(load_dump(path.read_bytes()), "flight recorder")
    return ["the dump cannot be read"] if log is None else _judge_log(log, "timed out")


def _judge_log(log: Any, when: str) -> list[str]:
    """Say what is wrong with a log of five operations that are done, and one that is not."""
    dones = [one.done for one in log.operations if one.kind == "all_reduce"]
    right = dones[-1:] == [False] and len(dones) == 6
    return [] if right else [f"{when}: all_reduce {dones}"]


def check_ras(given: Given) -> Seen:
    """NCCL's RAS service: its real answers in words and in JSON, and NCCL's own lines."""
    from hangbisect.evidence.gpus.nccl_lines import read_nccl_lines
    from hangbisect.evidence.gpus.ras_answers import parse_ras_status

    files = given.folder / "nccl-%h-%p.txt"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    environ = {
        **{"RANK": "0", "WORLD_SIZE": "1"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        **{"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(files)},
    }
    with start_job(given, programs.BEHIND, "600", environ=environ, name="ras") as (running, here):
        wait_for(running, here)
        answers = _record_ras(given.folder, "standing")
        pid = running.process.pid
    wrong, figures = [], {}
    for form in ("words", "json"):
        status = parse_ras_status(answers.get(form, b""))
        if status is None:
            wrong.append(f"{form}: not understood ({answers.get(form, b'')[:80]!r})")
            continue
        figures[form] = f"{status.version}, {len(status.communicators)} communicator(s)"
        ranks = [rank for one in status.communicators for rank in one.ranks]
        is_json = answers[form].lstrip().startswith(b"{")  # up to NCCL 2.28.3 it is words as well
        if is_json and [rank.pid for rank in ranks] != [pid]:
            wrong.append(f"json: pids {[rank.pid for rank in ranks]}, not {pid}")
    lines = [
        line
        for path in given.folder.glob("nccl-*.txt")
        for line in read_nccl_lines(path.read_text(errors="replace").splitlines())
    ]
    if not any(line.version for line in lines):
        wrong.append("NCCL's lines tell no version")
    if not any(line.making and line.making[3] for line in lines):
        wrong.append("NCCL's lines tell no communicator")
    return Seen(not wrong, "; ".join(wrong) or "both forms are understood", figures)


_RAS_PORT = 28028  # NCCL_RAS_CLIENT_PORT


def _record_ras(folder: Path, name: str) -> dict[str, bytes]:
    """Ask a RAS service of this machine in both forms, and keep its answers."""
    forms = {"words": (), "json": ("SET FORMAT json",)}
    found: dict[str, bytes] = {}
    for form, more in forms.items():
        with suppress(OSError):
            commands = ("CLIENT PROTOCOL 2", "TIMEOUT 2", *more, "VERBOSE STATUS")
            found[form] = _converse(commands)
            (folder / f"ras-{name}-{form}.txt").write_bytes(found[form])
    return found


def _converse(commands: Sequence[str]) -> bytes:
    """Return what comes after the last command, to the end. Raises OSError."""
    with socket.create_connection(("localhost", _RAS_PORT), 2.0) as connection:
        connection.settimeout(5.0)
        for command in commands[:-1]:
            connection.sendall(f"{command}\n".encode())
            answer = b""
            while not answer.endswith(b"\n"):
                answer = connection.recv(4096)
                if not answer:
                    raise ConnectionError(f"no answer to {command}")
        connection.sendall(f"{commands[-1]}\n".encode())
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
        return b"".join(parts)


def check_gpu_stacks(given: Given) -> Seen:
    """Which kernel a GPU runs, by a core dump on demand; the process goes on."""
    flags = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory"
    environ = {
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_COREDUMP_PIPE": str(given.folder / "pipe.%h.%p"),
        "CUDA_COREDUMP_FILE": str(given.folder / "core.%h.%p"),
        "CUDA_COREDUMP_GENERATION_FLAGS": f"{flags},skip_local_memory,skip_abort",
    }
    with start_job(given, programs.LOAD, "spin", environ=environ, name="kernel") as (running, here):
        wait_for(running, here)
        verdict = attach(running, here, 80.0, ("--gpu-stacks",))
        time.sleep(2.0)
        goes_on = running.process.poll() is None
    said = [note for note in verdict.get("notes", []) if "GPU" in note]
    named = any("spin_kernel" in note or "no cuda-gdb" in note for note in said)
    right = named and goes_on
    return Seen(right, "; ".join(said)[:300] or "nothing was said", {"goes on": goes_on})


# ---- what it costs -------------------------------------------------------------------------------


def check_looks(given: Given) -> Seen:
    """Looks at native frames do not hold up a kernel."""
    from hangbisect.evidence.look import Target, take_looks

    seconds: dict[str, float] = {}
    looks, names = 0, set[str]()
    for way in ("looked at", "left alone"):
        with start_job(given, programs.KERNEL, name=way.replace(" ", "-")) as (running, here):
            jobs.until(lambda: (here / "there-0").exists(), THERE, running.process)
            while running.process.poll() is None and way == "looked at":
                (one,) = asyncio.run(take_looks([Target(running.process.pid)], native=True))
                names |= {f.name for t in one.threads[:1] for f in t.frames if f.native}
                looks += 1
            jobs.until(lambda: running.process.poll() is not None, 60.0)
            seconds[way] = round(find_times(running.said())["seconds"], 2)
    saw_wait = any("ynchronize" in name for name in names)
    right = seconds["looked at"] < 1.2 * seconds["left alone"] and saw_wait
    saw = "the wait is in the native frames" if saw_wait else "no native frame of the wait"
    return Seen(right, saw, {**seconds, "looks": looks})


def check_cost(given: Given) -> Seen:
    """What the watch costs beside training steps of 5 ms: as it is, and told of every step."""
    parts, count = _calibrate(given), "300" if given.on_cpu else "600"
    ways = {"plain": (), "watched": watch(), "kept watching": watch("--keep-watching")}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number, way in enumerate([*ways] * 2):
        with start_job(
            given, programs.STEPS, parts, count, under=ways[way], name=f"steps-{number}"
        ) as (running, _):
            jobs.until(lambda: running.process.poll() is not None, 60.0)
            found[way].append(find_times(running.said())["median"] * 1000)
    best = {way: min(medians) for way, medians in found.items()}
    figures: dict[str, Any] = {f"{way} ms": round(value, 3) for way, value in best.items()}
    figures["times"] = round(best["watched"] / best["plain"], 3)
    right = best["watched"] <= 1.05 * best["plain"]
    return Seen(right, "median step, the best of two starts each", figures)


def _calibrate(given: Given) -> str:
    with start_job(given, programs.STEPS, "0", name="calibrate") as (running, _):
        jobs.until(lambda: running.process.poll() is not None, 60.0)
        said = running.said()
    return str(json.loads(said.strip().splitlines()[-1])["parts"])


def check_compile(given: Given) -> Seen:
    """A compile of a real model is no hang."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(given.folder / "cache")}
    shutil.rmtree(cache["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)
    began = time.monotonic()
    with start_job(
        given, programs.COMPILE, under=watch("--stall", "8"), environ=cache, name="compile"
    ) as (running, here):
        jobs.until(lambda: running.process.poll() is not None, 140.0)
        seconds = time.monotonic() - began
        said, verdict = running.said(), jobs.verdict_of(here / "run")
    shutil.rmtree(cache["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)
    right = running.process.returncode == 0 and "step 2:" in said
    right = right and verdict.get("outcome") in (None, "ok", "slow")
    figures = {"outcome": verdict.get("outcome"), "start to end s": round(seconds, 1)}
    return Seen(right, "three steps of a compiled GPT-2", figures)


def check_pipeline(given: Given) -> Seen:
    """The pipeline on one rank, with CUDA and NCCL."""
    words = ["--fast-dev-run", "2", "--strategy", "ddp", "--wandb", "off", "--hub", "offline"]
    words += [] if given.on_cpu else ["--accelerator", "gpu", "--backend", "nccl"]
    with jobs.folder() as here:
        running = jobs.start(words, here, ranks=1, environ={"HOME": str(here)})
        ended = running.end(100.0)
        (given.folder / "pipeline.txt").write_text(ended.out + ended.err)
        keep_files(here / "run", given.folder, KEPT)
    outcome = ended.verdict.get("outcome")
    right = ended.status == 0 and outcome == "ok" and ended.clean
    said = next((ln for ln in ended.err.splitlines()[::-1] if ln.strip()), "") if not right else ""
    return Seen(right, f"status {ended.status} {said[:200]}".rstrip(), {"outcome": outcome})


_PIPELINE = ("pytorch_lightning", "transformers")
CHECKS = (
    Check("nvml", "NVML's answers idle, spinning and computing", check_nvml, 110.0),
    Check(
        *("spin", "8 ranks share the GPU, one spins", check_spin, 110.0),
        stand_in=True,
        needs=(PY_SPY,),
    ),
    Check(
        *("never-comes", "ncclCommInitRank for two, one comes", check_never_comes, 120.0),
        needs_nccl=True,
        stand_in=True,
        needs=(PY_SPY,),
    ),
    Check("ras", "RAS and NCCL's lines", check_ras, 60.0, needs_nccl=True),
    Check("recorder", "recorder's pipe and dump, watchdog", check_recorder, 120.0, needs_nccl=True),
    Check(
        *("pipeline", "one rank with CUDA and NCCL", check_pipeline, 110.0),
        needs_nccl=True,
        stand_in=True,
        needs=_PIPELINE,
    ),
    Check("memory", "a rank asks for too much memory", check_memory, 60.0, stand_in=True),
    Check("memory-taken", "somebody else has the memory", check_taken_memory, 75.0),
    Check("gpu-stacks", "the kernel that a GPU runs", check_gpu_stacks, 110.0),
    Check("looks", "looks do not hold up a kernel", check_looks, 60.0, needs=(PY_SPY,)),
    Check("cost", "the watch beside steps of 5 ms", check_cost, 120.0, stand_in=True),
    Check(
        *("compile", "a compile of a real model", check_compile, 150.0),
        stand_in=True,
        needs=("transformers",),
    ),
    Check(
        *("zoo", "K01, K02, K03 of the zoo", check_zoo, 150.0),
        needs_nccl=True,
        needs=(PY_SPY, *_PIPELINE),
    ),
)
