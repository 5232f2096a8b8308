"""report.md of whole run folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.process_facts import Frame, Kernel, Look, Syscall, Thread
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.diagnosis.wait_graph import WaitGraph
from hangbisect.monitor.run_folder import RunFolder
from hangbisect.monitor.verdict_output import write_looks
from hangbisect.report.issue_page import run_page
from hangbisect.report.issue_sections import MOST_CHARACTERS, Masked, count_characters
from hangbisect.report.run_reader.run import RecordedRun, read_run
from hangbisect.report.run_reader.run_files import read_verdict
from hypothesis import given, settings
from hypothesis import strategies as st

from ...examples import examples
from ..kept.made_up import VERDICT, event, hello, write_run
from .rendering import OURS, rendered

WORLD = 1024
JOB = JobFacts(
    ended="still",
    pipeline="startup",
    command=(),
    attempt=0,
    world_size=2,
    local_ranks=(),
    table=(),
    now=0.0,
    started=0.0,
    package="/ours",
)


def rank(number: int, *names: str, depth: int = 0, **more: Any) -> RankFacts:
    """Return a rank with a look at it; frames innermost first."""
    frames = (
        Frame("recv", "libc.so.6", 0, native=True),
        *(Frame(name, "/home/ada/train.py", line) for line, name in enumerate(names, 1)),
        *(Frame(f"deeper_{n}", "/v/site-packages/lib.py", n) for n in range(depth)),
    )
    look = Look(
        at=10.0,
        pid=4710 + number,
        ppid=1,
        name="python",
        command=("python", "train.py"),
        age=50.0,
        state="S",
        rung="py-spy",
        threads=(Thread(4710 + number, "MainThread", False, False, frames),),
        kernel=(Kernel(4710 + number, "python", "S", "w", Syscall(45, "recvfrom", ())),),
    )
    place = {"pid": 4710 + number, "host": f"n{number // 8:03}", "looks": (look,)}
    return RankFacts(number, number % 8, **{**place, **more})


def write_evidence(folder: Path, ranks: Sequence[RankFacts]) -> None:
    """Write what a monitor writes."""
    write_looks(RunFolder(folder, folder), JOB, WaitGraph((), (), ()), ranks)


def of_two(folder: Path) -> Path:
    write_run(
        folder,
        events=[
            hello(1.0, 0),
            hello(1.0, 1),
            event(1.0, "table", numbers={"wandb_logger": 9}),
            event(2.0, "enter", 0, n=9),
            event(2.0, "enter", 1, n=9),
            event(20.0, "verdict", outcome="hang"),
        ],
        environment={
            "versions": {"torch": "2.4"},
            "kernel": "6.1",
            "ranks": {"0": {"NCCL_DEBUG": "INFO"}, "1": {}},
        },
    )
    write_evidence(folder, [rank(0, "barrier", "main"), rank(1, "init", "main")])
    return folder


def test_all_that_an_issue_asks_for_is_there(tmp_path: Path) -> None:
    text = run_page(read_run(of_two(tmp_path)))
    found = rendered(text)
    assert {*found.tags} <= OURS
    title = "HANG at checkpoint 9 WandbLogger ready: rank 1 in wandb.init"
    assert text.replace("`", "").startswith(f"## {title}\n")
    for part in (
        *("culprit   rank 1", "Checkpoints", "hangs 18 s", "waits 18 s", "torch 2.4", "Linux 6.1"),
        *("What differs between the ranks", "NCCL_DEBUG", "not set", "How to reproduce"),
        "torchrun --nproc_per_node=2 train.py",
        "hangbisect isolate -- torchrun --nproc_per_node=2 train.py",
    ):
        assert part in found.shown, part


def test_the_stack_that_matters_is_unfolded_and_others_are_folded(tmp_path: Path) -> None:
    found = rendered(run_page(read_run(of_two(tmp_path))))
    assert "The stack of rank 1" in found.shown
    assert "    init (train.py:1)" in found.shown
    assert "    recv (libc.so.6" in found.shown  # native, too
    assert "    barrier (train.py:1)" in found.code
    assert "    barrier (train.py:1)" not in found.shown
    assert "--- they part" not in found.shown


def test_what_was_masked_is_said(tmp_path: Path) -> None:
    text = run_page(read_run(of_two(tmp_path)), Masked(2, {"W&B key": 3}))
    assert "masked: 2 secrets (W&B key 3" in rendered(text).plain


def write_many(folder: Path) -> Path:
    """Write a run of 1,024 ranks, with 12 different stacks."""
    everybody = range(WORLD)
    ranks = {**VERDICT["ranks"], "culprit": [7], "stuck": [7], "waiting": [*everybody][8:]}
    verdict = {**VERDICT, "world_size": WORLD, "ranks": ranks}
    write_run(
        folder,
        verdict,
        events=[
            *(hello(1.0, r, host=f"n{r // 8:03}", local_rank=r % 8) for r in everybody),
            event(1.0, "table", numbers={"script": 1, "wandb_logger": 9}),
            *(event(2.0, "enter", r, n=1) for r in everybody),
            *(event(3.0 + r / 1000, "reached", r, n=1) for r in everybody),
            *(event(5.0, "enter", r, n=9) for r in everybody),
            event(20.0, "verdict", outcome="hang"),
        ],
        environment={
            "versions": {},
            "ranks": {str(r): {"NCCL_IB_HCA": f"mlx{r + 9}", "RANK": str(r)} for r in everybody},
        },
    )
    write_evidence(
        folder,
        [rank(r, f"own_{r % 12}", *(f"step_{n}" for n in range(10)), depth=10) for r in everybody],
    )
    return folder


def test_of_1024_ranks_it_is_short_enough_and_ranks_are_grouped(tmp_path: Path) -> None:
    found = read_run(write_many(tmp_path))
    text = run_page(found)
    shown = rendered(text)
    assert count_characters(text) <= MOST_CHARACTERS
    assert len(found.merged.splitlines()) <= 60
    assert all(f"own_{kind} " in shown.code for kind in range(12))
    assert f"| `Script started` | {WORLD} of {WORLD} | 1.0 s to 2.0 s |" in text
    assert "waits: 8-1023" in text
    assert "1012 more values" in text  # each rank has another one


def test_what_does_not_fit_is_cut_and_named(tmp_path: Path) -> None:
    folder = of_two(tmp_path)
    for number in range(2, 40):
        lines = "\n".join(f"    f{n}_{number} (x.py:{n}) {'y' * 400}" for n in range(100))
        (folder / "stacks" / f"rank-{number}.txt").write_text(f"Thread 1: x\n{lines}\n")
    text = run_page(read_run(folder))
    assert MOST_CHARACTERS / 2 < count_characters(text) <= MOST_CHARACTERS
    assert "Left out to stay below the 65,536 characters" in text
    assert "rank 24" in text.split("Left out")[1]
    shown = rendered(text).shown
    assert "    init (train.py:1)" in shown
    assert "How to reproduce" in shown


BAD = "</details><script>x</script>```\n@ada | \x1b[31m " + "`" * 9 + "\ud800\x00"
LONG = "long " * 200_000


def everywhere(value: Any, text: str) -> Any:
    """Return JSON with `text` in the place of every text but those that say what is what."""
    if isinstance(value, str):
        return text
    if isinstance(value, list):
        return [everywhere(one, text) for one in value]
    if isinstance(value, dict):
        kept = ("outcome", "kind", "t", "seen_by", "rung")
        return {n: v if n in kept else everywhere(v, text) for n, v in value.items()}
    return value


@pytest.mark.parametrize("text", [BAD, LONG], ids=["bad", "long"])
def test_hostile_text_anywhere_is_shown_as_text(tmp_path: Path, text: str) -> None:
    folder = of_two(tmp_path)
    for name in ("verdict.json", "evidence.json", "environment.json"):
        data = everywhere(json.loads((folder / name).read_text()), text)
        (folder / name).write_text(json.dumps(data))
    events = (folder / "events.jsonl").read_text().splitlines()
    begin = {"t": "begin", "at": 3.0, "rank": 0, "step": text, "k": 1, "title": text}
    lines = [everywhere(json.loads(line), text[:5000]) for line in events]
    all_lines = [*lines, everywhere(begin, text[:5000])]
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, all_lines)))
    for file in (folder / "stacks").iterdir():
        raw = text.encode("utf-8", "surrogatepass")
        file.write_bytes(b"Thread 1: " + raw + b"\n    " + raw + b"\xff\n" + file.read_bytes())
    found = rendered(run_page(read_run(folder)))
    assert {*found.tags} <= OURS
    assert found.attributes == []
    assert "@ada" not in found.plain
    assert "\x1b" not in found.code
    if text is BAD:
        assert "<script>x</script>" in found.code


def no_verdict(folder: Path) -> None:
    (folder / "verdict.json").unlink()


def no_stacks(folder: Path) -> None:
    for file in (folder / "stacks").iterdir():
        file.unlink()


def nothing_else(folder: Path) -> None:
    for name in ("evidence.json", "environment.json", "events.jsonl"):
        (folder / name).unlink()
    no_stacks(folder)


def no_json(folder: Path) -> None:
    (folder / "evidence.json").write_text("{")


@pytest.mark.parametrize("harm", [no_verdict, no_stacks, nothing_else, no_json])
def test_what_is_left_of_a_run_makes_a_page(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    folder = of_two(tmp_path)
    harm(folder)
    text = run_page(read_run(folder))
    assert {*rendered(text).tags} <= OURS
    assert ("Not in this report" in text) == (harm is no_json)


def test_of_a_crash_the_traceback_is_the_stack(tmp_path: Path) -> None:
    ranks = {**VERDICT["ranks"], "culprit": [1], "stuck": [], "waiting": [], "dead": [1]}
    write_run(tmp_path, {**VERDICT, "outcome": "crash", "ranks": ranks, "call": None})
    (tmp_path / "stacks" / "rank-1.txt").write_text("Traceback\n  File x\nValueError: no\n")
    shown = rendered(run_page(read_run(tmp_path))).shown
    assert "CRASH" in shown
    assert "ValueError: no" in shown


def test_who_is_waited_for_comes_first_of_the_other_stacks(tmp_path: Path) -> None:
    waits = {"kind": "process", "detail": "x", "pid": 99, "process": "wandb-core"}
    folder = of_two(tmp_path)
    write_run(folder, {**VERDICT, "waits_for": waits})
    child = replace(rank(1, "serve").looks[0], pid=99, name="wandb-core")
    other = replace(rank(1, "watch").looks[0], pid=98, name="a-helper")
    ranks = [rank(0, "barrier"), rank(1, "init", children=((other,), (child,)))]
    write_evidence(folder, ranks)
    text = run_page(read_run(folder))
    assert text.index("which is waited for") < text.index("<summary>rank 0")
    assert text.index("<summary>rank 0") < text.index("<summary><code>a-helper")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(sorted(VERDICT)), JSON, max_size=4))
@settings(max_examples=examples(50))
def test_no_verdict_breaks_the_page(changed: dict[str, Any]) -> None:
    verdict, wrong = read_verdict({**VERDICT, **changed})
    text = run_page(RecordedRun(Path("run"), verdict=verdict, missing=(wrong,)))
    assert {*rendered(text).tags} <= OURS
    assert count_characters(text) <= MOST_CHARACTERS
