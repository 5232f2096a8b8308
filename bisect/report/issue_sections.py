"""The sections of report.md, and how any text becomes Markdown.

A text of the run stays text (it ends no block, makes no tag, mentions no user). Sections are made
to fit into what GitHub takes: the least useful one is cut first. They are the stack that matters,
unfolded, and one of each other kind, folded; the command, versions, what differs between the
ranks, the environment.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ..base.command_words import can_be_typed
from ..base.identity import name_rank, rank_file, write_rank
from ..base.lazy_dataclass import dataclass
from ..base.outcomes import STANDS_STILL
from ..base.verdict_facts import Ranks
from ..base.words import format_count, format_rank_numbers, format_ranks
from .run_reader.rank_differences import RankDifference, find_differences
from .run_reader.run import RecordedRun
from .run_reader.run_files import (
    JobEnvironment,
    StackFile,
    read_stack_file,
    read_stack_files,
    split_lines,
)

LONGEST_LINE = 500  # characters of a line
_BACKTICKS = re.compile(r"`+")
_SPACES = {"\t": "    "}


def escape_line(line: str, most: int = LONGEST_LINE) -> str:
    """Return one line with control characters, and those that turn the direction of writing, as
    escapes; without what goes beyond `most` characters.
    """
    shown = "".join(_SPACES.get(c, c) if c.isprintable() else _escape(c) for c in line[: most + 1])
    if len(line) <= most:
        return shown
    return f"{shown[:most]} ... ({len(line) - most:,} more characters)"


def _escape(character: str) -> str:
    return _SPACES.get(character) or character.encode("unicode_escape").decode()


def code_block(lines: Iterable[str], language: str = "text") -> str:
    """Return lines as a block of code, whatever they hold."""
    shown = [escape_line(line) for line in lines]
    longest = max((len(run) for line in shown for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *shown, fence])


def inline_code(text: str, most: int = LONGEST_LINE) -> str:
    """Return a text as code within a line, also in a cell of a table; "" for none."""
    shown = " ".join(escape_line(text, most).split())
    if not shown:
        return ""
    if "|" in shown:  # it would end a cell; by its number it has no meaning
        return f"<code>{''.join(map(_by_number, shown))}</code>"
    longest = max((len(run) for run in _BACKTICKS.findall(shown)), default=0)
    ticks = "`" * (longest + 1)
    space = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def _by_number(character: str) -> str:
    return character if character.isalnum() or character == " " else f"&#{ord(character)};"


def html_code(text: str, most: int = LONGEST_LINE) -> str:
    """Return a text as code within our own HTML, where Markdown has no meaning."""
    return f"<code>{html.escape(' '.join(escape_line(text, most).split()))}</code>"


def details_block(summary: str, body: str) -> str:
    """Return a block that is folded until one opens it; `summary` is made of our own words and of
    html_code().
    """
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


MOST_CHARACTERS = 65_536  # characters of an issue or a comment
STEP_SUMMARY = 1 << 20  # bytes of the summary of a step in GitHub Actions
_ROOM = 1_500  # characters for what was left out


@dataclass(frozen=True)
class Section:
    """A part of the page. `useful`: the higher the later it is cut; none is cut twice."""

    text: str
    useful: int
    name: str  # what is said where it was cut: "the stack of rank 3 (stacks/rank-3.txt)"
    shorter: str = ""  # what stands instead


def count_characters(text: str) -> int:
    """Return how many characters GitHub may count.

    Its server has been seen to count code points, bytes by four, and browsers send each line break
    as two and count UTF-16: the largest of these is what must fit.
    """
    return len(text.encode("utf-16-le", "replace")) // 2 + text.count("\n")


def fit_sections(
    sections: Sequence[Section], most: int = MOST_CHARACTERS
) -> tuple[str, tuple[str, ...]]:
    """Return the page, and the names of what was cut: of equally useful sections the last first."""
    texts = [section.text for section in sections]
    left_out: list[str] = []
    size = sum(count_characters(text) + 4 for text in texts)  # an empty line after each
    order = sorted(range(len(sections)), key=lambda i: (sections[i].useful, -i))
    for number in order:
        if size <= most - (_ROOM if left_out or size > most else 0):
            break
        section = sections[number]
        size -= count_characters(section.text) - count_characters(section.shorter)
        texts[number] = section.shorter
        left_out.append(section.name)
    return "\n\n".join(text for text in texts if text), tuple(left_out)


@dataclass(frozen=True)
class Masked:
    """How much a redactor found."""

    secrets: int = 0  # different ones
    counts: Mapping[str, int] = field(default_factory=dict)  # places, by kind: "W&B key", ...

    @property
    def words(self) -> str:
        """Return it in words, "" if nothing was masked."""
        if not self.counts:
            return ""
        kinds = ", ".join(f"{kind} {number}×" for kind, number in sorted(self.counts.items()))  # noqa: RUF001  # times
        secrets = f"{self.secrets} secret{'' if self.secrets == 1 else 's'}" if self.secrets else ""
        return f"{secrets} ({kinds})" if secrets else kinds


NOTHING_MASKED = Masked()


MOST_LINES = 120  # of the stack that matters
_LINES_OF_OTHERS = 80
MOST_OTHERS = 24  # blocks


def culprit_stack_sections(run: RecordedRun) -> list[Section]:
    """Return the first culprit's main thread, unfolded; its other threads folded."""
    one = _find_culprit_file(run)
    if one is None:
        return []
    main, others = one.lines[: one.main_end], one.lines[one.main_end :]
    shown, rest = main[:MOST_LINES], main[MOST_LINES:]
    more = [f"({format_count(len(rest), 'more line')} in stacks/{one.name})"] if rest else []
    title = f"### The stack of {_title(one)}"
    text = f"{title}\n\n{code_block([*shown, *more])}"
    short = f"{title}\n\n{code_block([*shown[:30], f'(the rest is in stacks/{one.name})'])}"
    found = [Section(text, 90, f"most of the stack of {_title(one)} (stacks/{one.name})", short)]
    if others:
        body = code_block(others[: 2 * MOST_LINES])
        summary = f"{format_count(one.other_threads, 'other thread')} of {_title(one)}"
        found.append(Section(details_block(summary, body), 40, f"{summary} (stacks/{one.name})"))
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
    matters = _find_culprit_file(run)
    alike: dict[str, list[StackFile]] = {}
    for one in read_stack_files(run.stacks):
        if one != matters:
            alike.setdefault(one.kind, []).append(one)
    wait = run.verdict.waits_for if run.verdict else None
    awaited = wait.pid if wait else None
    groups = sorted(alike.values(), key=lambda files: not _is_awaited(files[0], awaited))
    sections = [_group_section(files, awaited) for files in groups[:MOST_OTHERS]]
    left = groups[MOST_OTHERS:]
    if left:
        count = sum(map(len, left))
        text = f"{format_count(count, 'more stack')} in the folder stacks/"
        sections.append(Section(text, 10, text, text))
    return sections


def _group_section(files: Sequence[StackFile], awaited: int | None) -> Section:
    """Return the first of the stacks that are alike."""
    one = files[0]
    left = len(one.lines) - _LINES_OF_OTHERS
    more = [f"({format_count(left, 'more line')} in stacks/{one.name})"] if left > 0 else []
    alike = f" (the same: {_count_files(files[1:])})" if len(files) > 1 else ""
    is_awaited = _is_awaited(one, awaited)
    summary = _title(one) + alike + (", which is waited for" if is_awaited else "")
    summary += f": {html_code(one.innermost, 120)}" if one.innermost else ""
    useful = 60 if is_awaited else 30 if one.is_of_rank else 20
    text = details_block(summary, code_block([*one.lines[:_LINES_OF_OTHERS], *more]))
    return Section(text, useful, f"{_title(one)}{alike}")


def _find_culprit_file(run: RecordedRun) -> StackFile | None:
    """Return the file of the rank that it is about: a culprit's, else one that is stuck or dead."""
    ranks = run.verdict.ranks if run.verdict else Ranks()
    for rank in (*ranks.culprit, *ranks.dead, *ranks.stuck):
        if (name := f"{rank_file(rank)}.txt") in run.stacks:
            return read_stack_file(name, run.stacks[name])
    return next((one for one in read_stack_files(run.stacks) if one.is_of_rank), None)


def _title(one: StackFile) -> str:
    if one.rank is None:
        return html_code(one.name)
    who = name_rank(one.rank)
    return who if one.is_of_rank else f"{html_code(one.process, 60)} ({one.pid}) of {who}"


def _count_files(files: Sequence[StackFile]) -> str:
    if all(one.is_of_rank for one in files):
        return format_ranks(one.rank for one in files if one.rank is not None)
    return f"{len(files)} more"


def _is_awaited(one: StackFile, pid: int | None) -> bool:
    return pid is not None and one.pid == pid


_MOST_VALUES = 12  # of one thing that differs
_MOST_DIFFERENCES = 60
_MOST_VARIABLES = 150


def version_sections(run: RecordedRun) -> list[Section]:
    """Return versions, and what machine it was."""
    found = {
        **_find_environment(run).versions,
        **(run.verdict.versions if run.verdict else {}),
    }
    versions = [inline_code(f"{name} {version}", 100) for name, version in list(found.items())[:60]]
    versions += _machine(run)
    return [Section(f"### Versions\n\n{', '.join(versions)}", 86, "versions")] if versions else []


def _find_environment(run: RecordedRun) -> JobEnvironment:
    return run.environment or JobEnvironment()


def _machine(run: RecordedRun) -> list[str]:
    environment = _find_environment(run)
    parts = [inline_code(f"Linux {environment.kernel}", 100)] if environment.kernel else []
    if environment.processors:
        parts.append(format_count(environment.processors, "core"))
    if run.world_size:
        parts.append(format_count(run.world_size, "rank"))
    names = [gpu.name for gpu in run.facts.machine.gpus]
    parts += [f"{names.count(n)} × {inline_code(n, 60)}" for n in dict.fromkeys(names[:64])]  # noqa: RUF001  # a sign that is read at once
    return parts


def difference_sections(run: RecordedRun) -> list[Section]:
    """Return what differs between ranks."""
    if run.world_size < 2 and len(_find_environment(run).ranks) < 2:
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


def _difference_rows(one: RankDifference) -> list[list[str]]:
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
    ranks = _find_environment(run).ranks
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
    return "$'" + "".join(c if c.isprintable() else _quote_character(c) for c in escaped) + "'"


def _quote_character(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x80 else f"\\U{number:08x}"


def reproduce_sections(run: RecordedRun) -> list[Section]:
    """Return the command, and what to start to see it again and to find what it comes from."""
    words = run.verdict.command if run.verdict else ()
    if not words or not can_be_typed(words):
        return []
    line = quote_command(words)
    parts = ["### How to reproduce", code_block([line], "sh")]
    if run.outcome in STANDS_STILL:
        again = line if words[:1] == ("hangbisect",) else f"hangbisect run -- {line}"
        parts += ["Watched, and searched for what it comes from:"]
        parts += [code_block([again, f"hangbisect isolate -- {line}"], "sh")]
    return [Section("\n\n".join(parts), 88, "how to reproduce")]
