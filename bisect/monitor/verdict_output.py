"""Says a verdict: on the terminal, to the process in front of a lone rank, to torchelastic; and
writes its evidence as files of the run folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.deadline import call_with_limit
from ..base.files import write_whole
from ..base.identity import native_file, rank_file, write_rank
from ..base.json_codec import to_json
from ..base.node_record import NodeClock, make_node_record
from ..base.rank_facts import LongestStep
from ..base.words import format_seconds, terminal_width
from ..report.rows import format_good_run, word_good_run
from .rank_exits import NOT_PROVED, STATES_AFTER, UNPROVED

if TYPE_CHECKING:
    from ..base.identity import RankId
    from ..base.process_facts import Look
    from ..base.rank_facts import JobFacts, RankFacts
    from ..base.verdict_facts import Verdict
    from ..diagnosis.wait_graph import WaitGraph
    from .job import Job
    from .run_folder import RunFolder


def print_verdict(
    job: Job,
    facts: JobFacts,
    verdict: Verdict,
    ranks: Sequence[RankFacts],
    graph: WaitGraph,
    published: bool,
    state: str,
) -> list[str]:
    """Print the verdict and return its lines. `state` says what the job was left in."""
    folder = str(job.files.where or "")
    for sentence in (*job.files.take_news(), *([] if published else job.files.losses())):
        job.say(sentence)
    width = terminal_width(2)
    stack: list[str] = []
    if verdict.outcome == "ok":
        first = next(iter(job.members), None)
        missing = sorted(first.not_exercised) if first else []
        longest = job.nodes.longest_step if job.nodes is not None else None
        longest = longest or find_longest_step(job)
        slowest = longest.words if longest is not None else ""
        answer = word_good_run(verdict, missing, slowest, folder, runs_script=job.runs_script)
        lines = format_good_run(answer, width)
    else:
        from ..report.terminal import culprit_stack, verdict_lines

        lines = verdict_lines(verdict, facts, ranks, run_dir=folder, state=state, width=width)
        if width is None and verdict.outcome != "interrupted":
            stack = culprit_stack(ranks, verdict, graph)
    if any(m.usage for m in job.members):
        return lines
    if job.settings["json"]:
        job.print_answer(json.dumps(to_json(verdict), ensure_ascii=False))
        return lines
    text = "\n".join([*lines, *stack])
    launcher = int(job.place["launcher_pid"])
    if verdict.outcome == "ok" or not job.outer.hand_over(text, launcher):
        job.print_answer(text)
    return lines


def find_longest_step(job: Job) -> LongestStep | None:
    """Return which step of this node took longest, "4 Tokenizer loaded 3.4 s (imports 3.3 s)"; None
    where there was none.
    """
    steps = [(took, n, m) for m in job.members for n, took in m.took.items()]
    if not steps:
        return None
    took, number, member = max(steps, key=lambda step: step[0])
    if job.members.user_steps is not None:
        return LongestStep(took, f"{job.members.user_steps.title(number)} {took:.1f} s")
    title = next((c.title for c in job.table if c.number == number), "")
    importing = member.imports.get(number, 0.0)
    inside = f" (imports {importing:.1f} s)" if importing >= 0.1 else ""
    return LongestStep(took, f"{number} {title} {took:.1f} s{inside}")


def describe_state(job: Job, verdict: Verdict, ending: bool, proof: str) -> str:
    """Return what a verdict leaves the job in, in words."""
    if verdict.outcome == "ok":
        return ""
    if ending:
        return STATES_AFTER["end"]
    if verdict.outcome in ("crash", "interrupted"):
        return "left to its launcher"
    pids = ", ".join(f"{m.pid} (rank {m.rank})" for m in job.members if not m.left)
    on_hang = "report" if job.ends_it else job.settings["on_hang"]
    state = STATES_AFTER[on_hang].format(pids=pids)
    return f"{state} ({_describe_silence(job, verdict)})" if verdict.outcome == "silent" else state


def _describe_silence(job: Job, verdict: Verdict) -> str:
    """Return in words that nothing proves a hang, and when it is called one all the same."""
    deadlines = job.find_deadlines(verdict).values()
    if not deadlines and not job.has_no_deadline(verdict):
        return NOT_PROVED
    left = max(min(deadlines, default=0.0), job.silent_until) - time.monotonic()
    return f"{UNPROVED}: called a hang in {format_seconds(max(0.0, left))}"


def say_outcome(job: Job, verdict: Verdict) -> None:
    """Tell the process in front of a lone rank, which gives the exit status."""
    pipe = job.settings.get("outcome_pipe")
    if pipe is not None:
        # Not left to its own status: a rank that has much to unload is ended before it is out.
        outcome = "usage" if any(m.usage for m in job.members) else verdict.outcome
        with contextlib.suppress(OSError):
            os.write(pipe, outcome.encode())
            os.close(pipe)
        job.settings["outcome_pipe"] = None


async def tell_torchelastic(job: Job, verdict: Verdict, lines: Sequence[str], since: float) -> None:
    """Fill the culprit's error file, so that torchrun's own last words carry the verdict.

    The form is that of torch/distributed/elastic/multiprocessing/errors/error_handler.py; the
    agent shows `py_callstack` of the failure with the earliest timestamp.
    """
    became_overdue = int(time.time() - (time.monotonic() - since))
    extra = {"py_callstack": "\n".join(lines), "timestamp": str(became_overdue)}
    content = json.dumps({"message": {"message": lines[0], "extraInfo": extra}})
    files = [m.error_file for m in job.members if m.rank in verdict.ranks.culprit and m.error_file]

    def write() -> None:
        for name in files[:1]:
            write_whole(name, content.encode())

    with contextlib.suppress(OSError, TimeoutError):
        await call_with_limit(write, limit=1.0)


def write_evidence(
    job: Job, facts: JobFacts, verdict: Verdict, graph: WaitGraph, ranks: Sequence[RankFacts]
) -> None:
    """Write what a verdict rests on; of a job that ended well, only the environment."""
    of_ranks: dict[RankId, Mapping[str, str]] = {m.rank: m.environment for m in job.members}
    write_environment(job.files, job.versions(), str(job.place["host"]), of_ranks)
    if verdict.outcome == "ok":
        return
    write_looks(job.files, facts, graph, ranks)
    for member in job.members:
        if member.traceback:
            job.files.write(f"stacks/rank-{member.rank}.txt", member.traceback)


def write_node(job: Job, facts: JobFacts, ranks: Sequence[RankFacts]) -> None:
    """Write what this node knows of a job that has ranks on others too."""
    if len(facts.local_ranks) >= facts.world_size:
        return
    clock = NodeClock(time.monotonic(), time.time())
    record = make_node_record(str(job.place["host"]), facts, ranks, clock)
    job.files.write_json("node.json", to_json(record))


def write_looks(
    files: RunFolder,
    facts: JobFacts,
    graph: WaitGraph,
    ranks: Sequence[RankFacts],
    named: Collection[RankId] | None = None,
) -> None:
    """Write the looks, and the stacks of each process as text: of a job of many ranks those that
    the verdict has `named`, and one of each kind; None: all.
    """
    from ..report.run_reader.run_files import leave_out_same_looks, make_evidence
    from ..report.stacks import merged_stacks_text, stack_text

    shown = ranks if named is None else leave_out_same_looks(ranks, named)
    files.write_json("evidence.json", to_json(make_evidence(shown, graph, facts.machine)))
    for rank in shown:
        if rank.looks:
            one, name = pick_best_look(rank.looks), f"stacks/{rank_file(rank.rank)}.txt"
            wait = graph.find_wait(rank.rank, one)
            files.write(name, stack_text(one, rank.rank, "rank", wait))
        if rank.native_threads:
            files.write(native_file(rank.rank), f"{rank.native_threads}\n")
        for looks in rank.children:
            one = pick_best_look(looks)
            name = f"stacks/{rank_file(rank.rank)}-{_plain_file_name(one.name)}-{one.pid}.txt"
            wait = graph.find_wait(rank.rank, one)
            files.write(name, stack_text(one, rank.rank, "child", wait))
    files.write("stacks/merged.txt", merged_stacks_text(ranks))


def write_environment(
    files: RunFolder,
    versions: Mapping[str, str],
    host: str,
    of_ranks: Mapping[RankId, Mapping[str, str]],
) -> None:
    """Write what the ranks ran in, and their variables."""
    from ..report.run_reader.run_files import JobEnvironment

    environment = JobEnvironment(
        versions=versions,
        host=host,
        processors=os.cpu_count(),
        kernel=os.uname().release,
        ranks={str(write_rank(rank)): variables for rank, variables in of_ranks.items()},
    )
    files.write_json("environment.json", to_json(environment))


def pick_best_look(looks: Sequence[Look]) -> Look:
    """Return the last look that shows a stack, else the last."""
    return next((one for one in reversed(looks) if one.threads), looks[-1])


def _plain_file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
