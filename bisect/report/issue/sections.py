"""The sections of report.md: the stack that matters unfolded and one of each other kind folded, the
command, versions, what differs between the ranks, the environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ...base.facts import Ranks
from ...base.identity import rank_file, write_rank
from ...base.words import format_count, format_rank_numbers, format_ranks
from ..run_files import JobEnvironment
from ..run_reader.rank_differences import Difference, find_differences
from ..run_reader.run import RecordedRun
from .markdown import (
    Section,
    code_block,
    details_block,
    html_code,
    inline_code,
    markdown_table,
    split_lines,
)

MOST_LINES = 120  # of the stack that matters
_LINES_OF_OTHERS = 80
MOST_OTHERS = 24  # blocks
_FILE = re.compile(r"rank-(\d{1,8}|pid\d{1,10}(?:[+_][\w.]{1,255})?)(?:-(.+)-(\d+))?\.txt")
_THREAD = re.compile(r"Thread |Current thread ")
# What no two processes share, and no stack is about.
_OWN = re.compile(r"\b(pid|Process|Thread|time:) \S+|0x[0-9a-f]+|\(\d+\)")


def culprit_stack_sections(run: RecordedRun) -> list[Section]:
    """Return the first culprit's main thread, unfolded; its other threads folded."""
    name = _culprit_file(run)
    if name is None:
        return []
    lines = split_lines(run.stacks[name])
    end = _end_of_main(lines)
    shown, rest = lines[:end][:MOST_LINES], lines[:end][MOST_LINES:]
    more = [f"({format_count(len(rest), 'more line')} in stacks/{name})"] if rest else []
    title = f"### The stack of {_title(name)}"
    text = f"{title}\n\n{code_block([*shown, *more])}"
    short = f"{title}\n\n{code_block([*shown[:30], f'(the rest is in stacks/{name})'])}"
    found = [Section(text, 90, f"most of the stack of {_title(name)} (stacks/{name})", short)]
    others = lines[end:]
    if others:
        body = code_block(others[: 2 * MOST_LINES])
        threads = sum(1 for line in others if _THREAD.match(line))
        summary = f"{format_count(threads, 'other thread')} of {_title(name)}"
        found.append(Section(details_block(summary, body), 40, f"{summary} (stacks/{name})"))
    return found


def stack_tree_sections(run: RecordedRun) -> list[Section]:
    """Return all stacks as one tree, folded."""
    lines = split_lines(run.merged)
    if not lines:
        return []
    text = details_block("The stacks of all ranks as one tree", code_block(lines[:200]))
    return [Section(text, 70, "the tree of all stacks (stacks/merged.txt)")]


def other_stack_sections(run: RecordedRun) -> list[Section]:
    """Return one stack of each other kind, folded: those of ranks, then those of children; what
    the culprit waits for first.
    """
    matters = _culprit_file(run)
    alike: dict[str, list[str]] = {}
    for name in sorted(run.stacks, key=_order):
        if name != matters and _FILE.fullmatch(name):
            alike.setdefault(_kind(run.stacks[name]), []).append(name)
    wait = run.verdict.waits_for if run.verdict else None
    awaited = wait.pid if wait else None
    groups = sorted(alike.values(), key=lambda names: not _is_of(names[0], awaited))
    sections = [_group_section(run, names, awaited) for names in groups[:MOST_OTHERS]]
    left = groups[MOST_OTHERS:]
    if left:
        count = sum(map(len, left))
        told = f"{format_count(count, 'more stack')} in the folder stacks/"
        sections.append(Section(told, 10, told, told))
    return sections


def _group_section(run: RecordedRun, names: Sequence[str], awaited: object) -> Section:
    """Return the first of the stacks that are alike."""
    name = names[0]
    lines = split_lines(run.stacks[name])
    left = len(lines) - _LINES_OF_OTHERS
    more = [f"({format_count(left, 'more line')} in stacks/{name})"] if left > 0 else []
    alike = f" (the same: {_count_files(names[1:])})" if len(names) > 1 else ""
    is_awaited = _is_of(name, awaited)
    summary = _title(name) + alike + (", which is waited for" if is_awaited else "")
    innermost = _innermost(lines)
    summary += f": {html_code(innermost, 120)}" if innermost else ""
    useful = 60 if is_awaited else 30 if _is_rank(name) else 20
    text = details_block(summary, code_block([*lines[:_LINES_OF_OTHERS], *more]))
    return Section(text, useful, f"{_title(name)}{alike}")


# ---- names of files ------------------------------------------------------------------------------


def _culprit_file(run: RecordedRun) -> str | None:
    """Return the file of the rank that it is about: a culprit's, else one that is stuck or dead."""
    ranks = run.verdict.ranks if run.verdict else Ranks()
    for rank in (*ranks.culprit, *ranks.dead, *ranks.stuck):
        if f"{rank_file(rank)}.txt" in run.stacks:
            return f"{rank_file(rank)}.txt"
    of_ranks = sorted((n for n in run.stacks if _is_rank(n)), key=_order)
    return of_ranks[0] if of_ranks else None


def _is_rank(name: str) -> bool:
    found = _FILE.fullmatch(name)
    return found is not None and found[2] is None


def _order(name: str) -> tuple[int, bool, int, str]:
    found = _FILE.fullmatch(name)
    if found is None:
        return 1, False, 0, name
    number = int(found[1]) if found[1].isdigit() else None
    return int(found[2] is not None), number is None, number or 0, name


def _title(name: str) -> str:
    found = _FILE.fullmatch(name)
    if found is None:
        return html_code(name)
    who = f"rank {found[1]}" if found[1].isdigit() else f"rank ? ({found[1]})"
    return who if found[2] is None else f"{html_code(found[2], 60)} ({found[3]}) of {who}"


def _count_files(names: Sequence[str]) -> str:
    files = [found for name in names if (found := _FILE.fullmatch(name)) and not found[2]]
    ranks = [int(found[1]) for found in files if found[1].isdigit()]
    if len(ranks) == len(names):
        return format_ranks(ranks)
    return f"{len(names)} more"


def _is_of(name: str, pid: object) -> bool:
    found = _FILE.fullmatch(name)
    return found is not None and pid is not None and found[3] == str(pid)


# ---- what they hold ------------------------------------------------------------------------------


def _end_of_main(lines: Sequence[str]) -> int:
    """Return where the main thread ends: a thread after it begins, or a log."""
    threads = [i for i, line in enumerate(lines) if _THREAD.match(line)]
    main = next((i for i in threads if "MainThread" in lines[i]), threads[0] if threads else None)
    if main is None or main != threads[0]:
        return len(lines)
    return threads[1] if len(threads) > 1 else len(lines)


def _innermost(lines: Sequence[str]) -> str:
    """Return the innermost frame of Python, of the first thread; else the innermost."""
    begin = next((i for i, line in enumerate(lines) if _THREAD.match(line)), len(lines))
    frames = [
        line.strip() for line in lines[begin : _end_of_main(lines)] if line.startswith("    ")
    ]
    return next((frame for frame in frames if ".py:" in frame), frames[0] if frames else "")


def _kind(text: str) -> str:
    """Return what stacks have in common that are of one kind: their frames."""
    frames = [line for line in text.splitlines() if line.startswith(("    ", "no stack", "state:"))]
    return _OWN.sub("", "\n".join(frames))


_MOST_VALUES = 12  # of one thing that differs
_MOST_DIFFERENCES = 60
_MOST_VARIABLES = 150


def version_sections(run: RecordedRun) -> list[Section]:
    """Return versions, and what machine it was."""
    found = {**_environment(run).versions, **(run.verdict.versions if run.verdict else {})}
    told = [inline_code(f"{name} {version}", 100) for name, version in list(found.items())[:60]]
    told += _machine(run)
    return [Section(f"### Versions\n\n{', '.join(told)}", 86, "versions")] if told else []


def _environment(run: RecordedRun) -> JobEnvironment:
    return run.environment or JobEnvironment()


def _machine(run: RecordedRun) -> list[str]:
    environment = _environment(run)
    told = [inline_code(f"Linux {environment.kernel}", 100)] if environment.kernel else []
    if environment.processors:
        told.append(format_count(environment.processors, "core"))
    if run.world_size:
        told.append(format_count(run.world_size, "rank"))
    names = [gpu.name for gpu in run.facts.machine.gpus]
    told += [f"{names.count(name)} × {inline_code(name, 60)}" for name in dict.fromkeys(names[:64])]  # noqa: RUF001  # a sign that is read at once
    return told


def difference_sections(run: RecordedRun) -> list[Section]:
    """Return what differs between ranks."""
    if run.world_size < 2 and len(_environment(run).ranks) < 2:
        return []
    found = find_differences(run)
    title = "### What differs between the ranks"
    if not found:
        nothing = "Nothing: hosts, versions, Python and the variables that matter are the same."
        return [Section(f"{title}\n\n{nothing}", 84, "what differs")]
    rows = [row for one in found[:_MOST_DIFFERENCES] for row in _difference_rows(one)]
    left = len(found) - _MOST_DIFFERENCES
    more = f"\n\n{format_count(left, 'more thing')} differ." if left > 0 else ""
    text = f"{title}\n\n{markdown_table(['what', 'value', 'ranks'], rows)}{more}"
    names = ", ".join(inline_code(one.name, 60) for one in found[:20])
    return [Section(text, 84, "the values of what differs between ranks", f"{title}\n\n{names}")]


def _difference_rows(one: Difference) -> list[list[str]]:
    values = list(one.values.items())
    rows = [
        [
            inline_code(one.name, 80) if not number else "",
            inline_code(value, 200) or "not set",
            format_rank_numbers(ranks),
        ]
        for number, (value, ranks) in enumerate(values[:_MOST_VALUES])
    ]
    rest = values[_MOST_VALUES:]
    if rest:
        ranks = [rank for _, them in rest for rank in them]
        rows.append(["", f"{format_count(len(rest), 'more value')}", format_rank_numbers(ranks)])
    return rows


def environment_sections(run: RecordedRun) -> list[Section]:
    """Return the variables that matter of the rank that it is about, folded."""
    ranks = _environment(run).ranks
    culprit = run.verdict.ranks.culprit if run.verdict else ()
    culprits = [str(write_rank(rank)) for rank in culprit]
    rank = next((one for one in (*culprits, *ranks) if one in ranks), None)
    if rank is None or not ranks[rank]:
        return []
    lines = [f"{name}={value}" for name, value in sorted(ranks[rank].items())]
    left = len(lines) - _MOST_VARIABLES
    more = [f"({format_count(left, 'more variable')} in environment.json)"] if left > 0 else []
    summary = f"The environment of rank {rank}, as far as it matters"
    text = details_block(summary, code_block([*lines[:_MOST_VARIABLES], *more]))
    return [Section(text, 45, "the environment (environment.json)")]


def unread_sections(run: RecordedRun) -> list[Section]:
    """Return what could not be read of the run folder."""
    if not run.missing:
        return []
    lines = "\n".join(f"- {inline_code(sentence)}" for sentence in run.missing[:20])
    return [Section(f"### Not in this report\n\n{lines}", 75, "what could not be read")]


def quote_command(words: Sequence[str]) -> str:
    """Return a command line on one line: what cannot be printed stands as bash's $'...' has it."""
    return " ".join(_quote_word(word) for word in words)


def _quote_word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(c if c.isprintable() else _escape(c) for c in escaped) + "'"


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x80 else f"\\U{number:08x}"


def reproduce_sections(run: RecordedRun) -> list[Section]:
    """Return the command, and what to start to see it again and to find what it comes from."""
    words = run.verdict.command if run.verdict else ()
    if not words:
        return []
    line = quote_command(words)
    parts = ["### How to reproduce", code_block([line], "sh")]
    if run.outcome == "hang":
        again = line if words[:1] == ("hangbisect",) else f"hangbisect run -- {line}"
        parts += ["Watched, and searched for what it comes from:"]
        parts += [code_block([again, f"hangbisect isolate -- {line}"], "sh")]
    return [Section("\n\n".join(parts), 88, "how to reproduce")]
