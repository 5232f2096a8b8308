"""How long the reports of many ranks take, and how large they are.

python benchmarks/report_time.py                  1,024 ranks, 5 looks at each, 12 different stacks
python benchmarks/report_time.py --ranks 8        of a node
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from hangbisect.base.checkpoints import STARTUP
from hangbisect.base.json_codec import to_json
from hangbisect.base.process_facts import Frame, Kernel, Look, Syscall, Thread
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.base.verdict_facts import CheckpointPlace, Ranks, Verdict
from hangbisect.base.words import format_bytes
from hangbisect.diagnosis.wait_graph import WaitGraph
from hangbisect.monitor.run_folder import RunFolder
from hangbisect.monitor.verdict_output import write_looks
from hangbisect.report.issue_sections import count_characters
from hangbisect.report.report_files import make_reports

STACKS = 12
FRAMES = 40  # of each main thread; half of them are shared
STEP = 9  # checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--looks", type=int, default=5)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="report-"))
    try:
        write(folder, args.ranks, args.looks)
        read = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        wall, core = time.perf_counter(), time.process_time()
        made = make_reports(folder, summary=False)
        wall, core = time.perf_counter() - wall, time.process_time() - core
        print(
            f"{args.ranks} ranks, {format_bytes(read)} read: {core:.1f} s of a core, {wall:.1f} s"
        )
        for path in made.files:
            characters = count_characters(path.read_text(encoding="utf-8"))
            print(f"{path.name}: {path.stat().st_size:,} bytes, {characters:,} as GitHub counts")
        print(f"merged.txt: {len((folder / 'stacks/merged.txt').read_text().splitlines())} lines")
    finally:
        shutil.rmtree(folder)


def write(folder: Path, world: int, looks: int) -> None:
    """Write a run folder with what a monitor writes in it."""
    files = RunFolder(folder, folder)
    ranks = [rank(number, looks) for number in range(world)]
    job = JobFacts(
        ended="still",
        pipeline="startup",
        world_size=world,
        table=STARTUP,
        package="/ours",
    )
    write_looks(files, job, WaitGraph((), (), ()), ranks)
    verdict = Verdict(
        outcome="hang",
        pipeline="startup",
        command=("torchrun", "train.py"),
        attempt=0,
        world_size=world,
        checkpoint=CheckpointPlace(STEP, "wandb_logger", "WandbLogger ready"),
        ranks=Ranks((0,), (0,), tuple(range(1, world))),
        call="wandb.init",
    )
    files.write_json("verdict.json", to_json(verdict))
    variables = {"MASTER_ADDR": "n000", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "8"}
    environment = {"versions": {"torch": "2.4"}, "ranks": {str(r): variables for r in range(world)}}
    files.write_json("environment.json", environment)
    for event in events(world):
        files.note(event)


def events(world: int) -> list[dict[str, Any]]:
    """Return what `world` ranks tell on their way to the step that hangs."""
    numbers = {row.name: row.number for row in STARTUP}
    told: list[dict[str, Any]] = [{"at": 0.0, "t": "table", "numbers": numbers}]
    for number in range(world):
        place = {"host": f"n{number // 8:03}", "pid": 4000 + number, "local_rank": number % 8}
        told.append({"at": 0.0, "t": "hello", "rank": number, "began": 0.0, **place})
        for step in range(1, STEP):
            told.append({"at": float(step), "t": "enter", "n": step, "rank": number})
            told.append({"at": step + 0.5, "t": "reached", "n": step, "rank": number})
        told.append({"at": float(STEP), "t": "enter", "n": STEP, "rank": number})
    return [*told, {"at": 60.0, "t": "verdict", "outcome": "hang"}]


def rank(number: int, looks: int) -> RankFacts:
    """Return a rank in one of STACKS places."""
    kind = number % STACKS
    own = [Frame(f"own_{kind}_{n}", "/home/ada/train.py", n) for n in range(FRAMES // 2)]
    shared = [Frame(f"shared_{n}", "/v/site-packages/lib.py", n) for n in range(FRAMES // 2)]
    pid = 4000 + number
    look = Look(
        at=50.0,
        pid=pid,
        ppid=1,
        name="python",
        command=("python", "train.py"),
        age=60.0,
        state="S",
        rung="py-spy",
        threads=(Thread(pid, "MainThread", False, False, (*own, *shared)),),
        kernel=(Kernel(pid, "python", "S", "wait_woken", Syscall(45, "recvfrom", ())),),
    )
    return RankFacts(number, number % 8, pid=pid, host=f"n{number // 8:03}", looks=(look,) * looks)


if __name__ == "__main__":
    main()
