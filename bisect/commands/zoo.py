"""Make hangs that people reported happen for real, and compare the answers with the truth.

hangbisect zoo                     list the cases
hangbisect zoo show I10            what people reported, and the answer that is right
hangbisect zoo run [I10 ...]       run them (all of them), one row a case, and the shares

What follows "--" goes to the pipeline: hangbisect zoo run I10 -- --stall 20
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.argument_types import Parser, around_dashes, count, nearest
from ..base.errors import UsageError
from . import make_parser

if TYPE_CHECKING:
    from ..zoo.case_files import CaseFile
    from ..zoo.comparison import ComparedAnswer

WORDS = ("list", "show", "run")


def run(argv: list[str]) -> int:
    """List, show or run cases; return 1 if anything in an answer was wrong."""
    word, rest = (argv[0], argv[1:]) if argv and argv[0][:1] != "-" else ("list", argv)
    if word not in WORDS:
        raise UsageError(
            f"zoo cannot {word!r}: it is one of {', '.join(WORDS)}{nearest(word, WORDS)}"
        )
    does: dict[str, Callable[[list[str]], int]] = {"list": _list, "show": _show, "run": _run_cases}
    return does[word](rest)


def _parser(word: str) -> Parser:
    return make_parser(f"zoo {word}", __doc__)


def _list(argv: list[str]) -> int:
    from ..zoo import case_files, comparison

    _parser("list").parse_all(argv)
    cases = case_files.load_all_cases()
    print(comparison.list_cases(cases, [_why_not(kept) for kept in cases]))
    return 0


def _show(argv: list[str]) -> int:
    from ..zoo import case_files, comparison

    parser = _parser("show")
    parser.add_argument("cases", nargs="+", metavar="ID")
    chosen = case_files.choose_cases(parser.parse_all(argv).cases, case_files.load_all_cases())
    print("\n\n".join(comparison.describe_case(kept, _why_not(kept)) for kept in chosen))
    return 0


def _run_cases(argv: list[str]) -> int:
    from ..zoo import case_files, comparison

    ours, also = around_dashes(argv)
    args = _run_parser().parse_all(ours)
    chosen = case_files.choose_cases(args.cases, case_files.load_all_cases())
    _check_writable(args.json)
    answers = []
    print(comparison.format_head(), flush=True)
    for answer in _answers(chosen, args, also):
        answers.append(answer)
        print(comparison.format_answer(answer), flush=True)
        for command in answer.left:
            print(f"       left behind: {command}", flush=True)
    print(comparison.format_shares(answers))
    if args.json:
        _write(Path(args.json), answers)
    return int(any(not (answer.good or answer.skipped) for answer in answers))


def _run_parser() -> Parser:
    parser = _parser("run")
    add = parser.add_argument
    add("cases", nargs="*", metavar="ID", help="ids, or files of your own (all of the zoo)")
    add("--renamed", action="store_true", help="from copies with all names of their own changed")
    add("--jobs", metavar="N", type=count("--jobs", 1), default=1, help="cases side by side (1)")
    add("--keep", metavar="DIR", help="copy each run folder to DIR/ID")
    add("--json", metavar="FILE", help="write all rows to FILE")
    return parser


def _check_writable(file: str | None) -> None:
    """Find out now rather than at the end of an hour."""
    folder = os.path.dirname(os.path.abspath(file)) if file else ""
    if folder and not os.access(folder, os.W_OK):
        raise UsageError(f"--json cannot be {file!r}: nothing can be written in {folder}")


def _answers(
    chosen: Sequence[CaseFile], args: argparse.Namespace, also: Sequence[str]
) -> Iterator[ComparedAnswer]:
    """Yield answers in the order of the cases, each as soon as those before it are there."""
    from concurrent.futures import ThreadPoolExecutor

    from ..zoo.comparison import stopping

    if args.jobs == 1:
        yield from (_answer(kept, args, also) for kept in chosen)
        return
    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            yield from pool.map(lambda kept: _answer(kept, args, also), chosen)
        finally:
            stopping.set()  # the pool waits for what is under way; after Ctrl-C not for long


def _answer(kept: CaseFile, args: argparse.Namespace, also: Sequence[str]) -> ComparedAnswer:
    from dataclasses import replace

    from ..zoo import case_files, comparison

    case = kept.case
    why_not = _why_not(kept)
    if why_not:
        asked = comparison.find_what_is_asked(case)
        return comparison.ComparedAnswer(case.id, case.title, asked, skipped=why_not)
    module, source = kept.module, kept.file.read_text(encoding="utf-8")
    if args.renamed:
        source, module = case_files.read_renamed(kept.file)
        case = case_files.load_renamed(source, module, case)
    keep = Path(args.keep) / case.id if args.keep else None
    ran = comparison.run_case(case, module, source, also, keep)
    if not ran.verdict:
        print(
            f"{case.id}: no verdict (status {ran.status}):\n{ran.output[-2000:]}", file=sys.stderr
        )
    return replace(comparison.compare_verdict(case, ran.verdict, ran.seconds), left=ran.left)


def _why_not(kept: CaseFile) -> str:
    from ..zoo.case_files import find_missing

    return kept.case.left_out or find_missing(kept.case.needs)


def _write(file: Path, answers: Sequence[ComparedAnswer]) -> None:
    from ..zoo.comparison import format_shares

    rows = [{**asdict(answer), "located": answer.located} for answer in answers]
    text = json.dumps({"cases": rows, "shares": format_shares(answers)}, indent=1)
    aside = file.with_name(file.name + ".part")
    aside.write_text(text + "\n", encoding="utf-8")
    aside.replace(file)
