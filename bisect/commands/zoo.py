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
    from ..zoo.case import Case, Under
    from ..zoo.case_files import CaseFile
    from ..zoo.comparison import ComparedAnswer

WORDS = ("list", "show", "run")
_CULPRIT = "with --ranks: where the rank that is to blame is put, if the case lets it (0)"


def run(argv: list[str]) -> int:
    """List, show or run cases; return 1 if anything in an answer was wrong."""
    if argv and argv[0] in ("-h", "--help"):
        parser = make_parser("zoo", __doc__)
        parser.usage = "hangbisect zoo [-h] [list | show ID ... | run [ID ...]]"
        parser.parse_all(argv)
    word, rest = (argv[0], argv[1:]) if argv and argv[0][:1] != "-" else ("list", argv)
    if word not in WORDS:
        raise UsageError(
            f"zoo cannot {word!r}: it is one of {', '.join(WORDS)}{nearest(word, WORDS)}"
        )
    does: dict[str, Callable[[list[str]], int]] = {"list": _list, "show": _show, "run": _run_cases}
    return does[word](rest)


def _make_zoo_parser(word: str) -> Parser:
    return make_parser(f"zoo {word}", __doc__)


def _list(argv: list[str]) -> int:
    from ..zoo import case_files, comparison

    _make_zoo_parser("list").parse_all(argv)
    cases = case_files.load_all_cases()
    print(comparison.list_cases(cases, [_why_not(kept) for kept in cases]))
    return 0


def _show(argv: list[str]) -> int:
    from ..zoo import case_files, comparison

    parser = _make_zoo_parser("show")
    parser.add_argument("cases", nargs="+", metavar="ID")
    chosen = case_files.choose_cases(parser.parse_all(argv).cases, case_files.load_all_cases())
    print("\n\n".join(comparison.describe_case(kept, _why_not(kept)) for kept in chosen))
    return 0


def _run_cases(argv: list[str]) -> int:
    from ..zoo import case_files, comparison

    ours, also = around_dashes(argv)
    args = _run_parser().parse_all(ours)
    ways = [_check_way(word) for word in args.under.split(",")]
    chosen = case_files.choose_cases(args.cases, case_files.load_all_cases())
    _check_writable(args.json)
    answers = []
    print(comparison.format_head(), flush=True)
    for way in ways:
        if len(ways) > 1:
            print(f"under {way}:", flush=True)
        for answer in _answers(chosen, args, also, way):
            answers.append(answer)
            print(comparison.format_answer(answer), flush=True)
            for command in answer.left:
                print(f"       left behind: {command}", flush=True)
    print(comparison.format_shares_of_ways(answers))
    if args.json:
        _write(Path(args.json), answers)
    return int(any(not (answer.good or answer.skipped) for answer in answers))


def _run_parser() -> Parser:
    parser = _make_zoo_parser("run")
    add = parser.add_argument
    add("cases", nargs="*", metavar="ID", help="ids, or files of your own (all of the zoo)")
    add("--renamed", action="store_true", help="from copies with all names of their own changed")
    add(
        "--under",
        metavar="WAY",
        default="pipeline",
        help="as our own `pipeline`, as a script of its own below `run`, or as that script and "
        "looked at by `attach`; several with commas (pipeline)",
    )
    add("--ranks", metavar="N", type=count("--ranks", 2), help="in a world of so many ranks")
    add("--culprit", metavar="RANK", type=count("--culprit", 0), default=0, help=_CULPRIT)
    add("--jobs", metavar="N", type=count("--jobs", 1), default=1, help="cases side by side (1)")
    add("--keep", metavar="DIR", help="copy each run folder to DIR/ID")
    add("--json", metavar="FILE", help="write all rows to FILE")
    return parser


def _check_way(word: str) -> Under:
    ways: tuple[Under, ...] = ("pipeline", "run", "attach")
    for way in ways:
        if way == word:
            return way
    raise UsageError(f"--under cannot be {word!r}: {', '.join(ways)}{nearest(word, ways)}")


def _check_writable(file: str | None) -> None:
    """Find out now rather than at the end of an hour."""
    folder = os.path.dirname(os.path.abspath(file)) if file else ""
    if folder and not os.access(folder, os.W_OK):
        raise UsageError(f"--json cannot be {file!r}: nothing can be written in {folder}")


def _answers(
    chosen: Sequence[CaseFile], args: argparse.Namespace, also: Sequence[str], under: Under
) -> Iterator[ComparedAnswer]:
    """Yield answers in the order of the cases, each as soon as those before it are there."""
    from concurrent.futures import ThreadPoolExecutor

    from ..zoo.own_script import stopping

    if args.jobs == 1:
        yield from (_answer(kept, args, also, under) for kept in chosen)
        return
    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            yield from pool.map(lambda kept: _answer(kept, args, also, under), chosen)
        except BaseException:
            stopping.set()  # the pool waits for what is under way; after Ctrl-C not for long
            raise


def _answer(
    kept: CaseFile, args: argparse.Namespace, also: Sequence[str], under: Under
) -> ComparedAnswer:
    from dataclasses import replace

    from ..zoo import case_files, case_job, comparison

    case = kept.case
    why_not = _why_not(kept, under)
    if why_not:
        asked = comparison.find_what_is_asked(case)
        return comparison.ComparedAnswer(case.id, case.title, asked, skipped=why_not, under=under)
    module, source = kept.module, kept.file.read_text(encoding="utf-8")
    if args.renamed:
        source, module = case_files.read_renamed(kept.file)
        case = case_files.load_renamed(source, module, case)
    if args.ranks:
        case = _place(case, args.ranks, args.culprit)
    keep = Path(args.keep, "" if under == "pipeline" else under, case.id) if args.keep else None
    ran = case_job.run_case(case, module, source, also, keep, under)
    if not ran.verdict:
        print(
            f"{case.id}: no verdict (status {ran.status}):\n{ran.output[-2000:]}", file=sys.stderr
        )
    compared = comparison.compare_verdict(case, ran.verdict, ran.seconds, under)
    return replace(compared, left=ran.left)


def _place(case: Case, ranks: int, culprit: int) -> Case:
    from ..zoo.case import place_in_world

    try:
        return place_in_world(case, ranks, culprit)
    except ValueError as error:
        raise UsageError(str(error), "What a case allows: hangbisect zoo show ID") from None


def _why_not(kept: CaseFile, under: Under = "pipeline") -> str:
    from ..zoo.case_files import find_missing
    from ..zoo.own_script import why_not_under

    return why_not_under(kept.case, under) or find_missing(kept.case.needs)


def _write(file: Path, answers: Sequence[ComparedAnswer]) -> None:
    from ..zoo.comparison import format_shares_of_ways

    rows = [{**asdict(answer), "located": answer.located} for answer in answers]
    text = json.dumps({"cases": rows, "shares": format_shares_of_ways(answers)}, indent=1)
    aside = file.with_name(file.name + ".part")
    aside.write_text(text + "\n", encoding="utf-8")
    aside.replace(file)
