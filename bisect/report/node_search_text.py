"""What a search for bad nodes found, as lines of a terminal in the same order every time, and as
report.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from ..base.words import cut_line, format_count, format_seconds, join_lines, printable, wrap_line
from ..search.node_findings import NodeFinding
from ..search.node_search import NodesAnswer, NodesStart
from .isolation_text import format_probability
from .rows import LABEL, Answer, Row, make_rows, wrap_rows

MOST_START_ROWS = 8  # of the table of starts, on a terminal
MOST_NAMES = 6  # nodes named one by one
_MOST_WHY = 100  # characters
_HOW = {
    "alone": "fails alone",
    "in company": "passes alone and fails with any other node",
    "link": "both pass with others and fail together",
}


def nodes_lines(
    answer: NodesAnswer,
    *,
    folder: str,
    width: int | None = None,
    rows: int | None = MOST_START_ROWS,
) -> list[str]:
    """Return the answer. `width` is the terminal's, None for a pipe. `rows`: how many starts the
    table shows where there are more, those that failed; None: all. `folder` is that of report.md.
    """
    worded = word_nodes(answer)
    end = [*make_rows("report", f"{folder}/report.md" if rows is not None else "")]
    end += [replace(row, is_whole=True) for row in make_rows("next", answer.next)]
    return [
        *wrap_line(printable(worded.headline), width, LABEL),
        *wrap_rows(worded.rows, width),
        *(cut_line(printable(line), width) for line in _table_lines(answer, rows, folder)),
        *wrap_rows(end, width),
    ]


def nodes_report(answer: NodesAnswer, *, folder: str) -> str:
    """Return the answer with every start, to be pasted into an issue."""
    return "\n".join(["```", *nodes_lines(answer, folder=folder, rows=None), "```", ""])


def word_nodes(answer: NodesAnswer) -> Answer:
    """Return the answer in words, but for the table of starts, and what stands below that."""
    rows: list[Row] = []
    for one in answer.bad:
        rows += _word_finding(one)
    rows += _word_size(answer)
    some = [format_set(one) for one in answer.unexplained[:MOST_NAMES]]
    rows += make_rows("fails", ", ".join(some) if answer.outcome != "size" else "")
    rows += make_rows("passes", _word_control(answer))
    rows += make_rows("not seen", format_names(answer.not_seen) + _why_not_seen(answer))
    if answer.comes_and_goes:
        rows += make_rows("note", "a set failed and passed: it comes and goes")
    rows += _word_excluded(answer)
    return Answer(_word_headline(answer), tuple(rows))


def _word_headline(answer: NodesAnswer) -> str:
    starts = format_count(len(answer.starts), "start")
    rounds = format_count(answer.rounds, "round")
    size = f"{starts} in {rounds}, {format_seconds(answer.seconds)}"
    if answer.outcome == "found":
        return f"{_word_names(answer.bad).upper()}  {size}: {_list_bad(answer.bad)}"
    if answer.outcome == "size" and answer.size is not None:
        least = f"from {answer.size.nodes} nodes on it fails, whichever they are"
        return f"NO SINGLE NODE  {size}: {least}"
    if answer.outcome == "no_fault":
        seen = len(answer.nodes) - len(answer.not_seen)
        of_all = f" of {len(answer.nodes)}" if answer.not_seen else ""
        return f"NO BAD NODE  {size}: nothing failed on {seen}{of_all} nodes"
    first = {"interrupted": "INTERRUPTED", "not_started": "NOT STARTED"}
    return f"{first.get(answer.outcome, 'NOT RESOLVED')}  {size}: {answer.why}"


def _word_names(bad: Sequence[NodeFinding]) -> str:
    links = sum(one.kind == "link" for one in bad)
    parts = []
    if nodes := len(bad) - links:
        parts.append("bad node" if nodes == 1 else f"{nodes} bad nodes")
    if links:
        parts.append("bad link" if links == 1 else f"{links} bad links")
    return " and ".join(parts)


def _list_bad(bad: Sequence[NodeFinding]) -> str:
    names = [" to ".join(one.nodes) for one in bad]
    return format_names(names)


def _word_finding(one: NodeFinding) -> list[Row]:
    label = "link" if one.kind == "link" else "node"
    text = f"{' to '.join(one.nodes)}: {_HOW[one.kind]}"
    counts = f"failed in {one.fails} of {format_count(one.starts, 'start')}"
    control = f"without it {one.control_passes} passed, none failed"
    chance = f"p = {format_probability(one.p_value)}"
    return [Row(label, join_lines(text), (f"{counts}; {control}; {chance}",))]


def _word_size(answer: NodesAnswer) -> list[Row]:
    size = answer.size
    if size is None:
        return []
    fails = f"{size.nodes} nodes: {size.fails} different sets, all failed"
    passes = f"{size.nodes - 1} nodes: {size.passes} different sets, all passed"
    return make_rows("number", fails, passes if size.nodes > 1 else "")


def _word_control(answer: NodesAnswer) -> str:
    control = answer.control
    if not control:
        return ""
    together = " together" if len(control) > 1 else " alone"
    if len(control) == len(answer.nodes):
        return f"all {len(control)} nodes{together}"
    return f"{format_names(control)}{together}"


def _why_not_seen(answer: NodesAnswer) -> str:
    said = [s.why for s in answer.starts if s.result == "unknown" and len(s.nodes) == 1]
    return f": {said[0]}" if answer.not_seen and said else ""


def _word_excluded(answer: NodesAnswer) -> list[Row]:
    """Return the lines that leave the bad nodes out, of a link one end."""
    names = answer.exclude
    if not names:
        return []
    each = f"kubectl cordon {shlex.join(names)}"
    row = Row("exclude", f"--exclude={','.join(names)}", (each,), is_whole=True)
    either = [one for one in answer.bad if one.kind == "link"]
    note = "of a link one end is enough, either of them" if either else ""
    return [row, *make_rows("", note)]


def format_names(names: Sequence[str]) -> str:
    """Return "n1, n2, n3", and of many the first ones and how many more."""
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"


def format_set(nodes: Sequence[str]) -> str:
    """Return "n1+n2", of many nodes the first ones and how many."""
    if len(nodes) <= 4:
        return "+".join(nodes)
    return f"{'+'.join(nodes[:2])}+... ({len(nodes)} nodes)"


# ---- the starts ----------------------------------------------------------------------------------


def _table_lines(answer: NodesAnswer, rows: int | None, folder: str) -> list[str]:
    """Return a head and a row for each start; where not all are shown those that did not pass."""
    starts = answer.starts
    if not starts:
        return []
    shown = starts
    if rows is not None and len(starts) > rows:
        shown = tuple(start for start in starts if start.result != "pass")[:rows]
    names = [format_set(start.nodes) for start in shown]
    wide = max([len("nodes"), *map(len, names)])
    lines = [f"round  {'nodes':<{wide}}  {'time':>6}  result"]
    for start, name in zip(shown, names, strict=True):
        took = format_seconds(start.seconds)
        lines.append(f"{start.round:>5}  {name:<{wide}}  {took:>6}  {_word_result(start)}")
    if len(shown) < len(starts):
        lines.append(f"       ({len(starts) - len(shown)} more in {folder}/report.md)")
    return lines


def _word_result(start: NodesStart) -> str:
    said = cut_line(join_lines(start.why), _MOST_WHY)
    return f"{start.result}: {said}" if said else start.result


def round_lines(number: int, starts: Sequence[NodesStart]) -> list[str]:
    """Return the story of a round: a line, and one for each set that did not pass."""
    passed = [start for start in starts if start.result == "pass"]
    took = format_seconds(max((start.seconds for start in starts), default=0.0))
    sets = format_count(len(starts), "set")
    sizes = sorted({len(start.nodes) for start in starts})
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    nodes = "node" if sizes == [1] else "nodes"
    head = f"round {number}: {sets} of {each} {nodes}, {len(passed)} passed, {took}"
    left = [start for start in starts if start.result != "pass"]
    lines = [f"  {format_set(s.nodes)}: {_word_result(s)}" for s in left[:MOST_START_ROWS]]
    more = [f"  and {len(left) - MOST_START_ROWS} more"] if len(left) > MOST_START_ROWS else []
    return [printable(line) for line in (head, *lines, *more)]
