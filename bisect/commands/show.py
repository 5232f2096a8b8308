"""Print the verdict of a run folder again.

hangbisect show runs/20261120T174812-a1          as it was printed when it was made
hangbisect show runs/20261120T174812-a1 --json   verdict.json
hangbisect show runs/iso-20261120T180201         the answer of an isolation, or of a matrix
"""

from __future__ import annotations

import json
import os
import sys

from ..base.argument_types import Parser
from ..base.errors import UsageError

LIMIT = 5.0  # seconds to see whether a file is there


def run(argv: list[str]) -> int:
    """Print it. What could not be read of the folder is said on stderr."""
    parser = Parser(prog="hangbisect show", epilog=__doc__)
    parser.add_argument("-h", "--help", action="help", help="show this")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("folder", nargs="?", metavar="RUN", help="a run folder")
    args = parser.parse_all(argv)
    if args.folder is None:
        raise UsageError("show needs a run folder", "hangbisect show runs/20261120T174812-a1")

    from ..base.json_codec import to_json
    from ..base.words import replace_unprintable, terminal_width
    from ..report.isolation import replay_answer
    from ..report.run_reader.run import read_run

    found = read_run(args.folder)
    for sentence in found.missing:
        print(f"hangbisect: {replace_unprintable(sentence)}", file=sys.stderr)
    if found.kind == "run" and not found.verdict:
        raise UsageError(f"{args.folder} has no verdict that can be read")
    if args.json and not (found.verdict or found.answer):
        raise UsageError(f"{args.folder} has no {found.kind}.json that can be read whole")
    if args.json:
        whole = to_json(found.verdict or found.answer)
        print(json.dumps(whole, indent=2, ensure_ascii=False))
    elif found.verdict:
        from ..report.run_reader.run import read_rank_facts
        from ..report.terminal import replay_verdict

        lines = replay_verdict(found.verdict, args.folder, terminal_width(), read_rank_facts(found))
        print("\n".join(lines))
        if found.outcome != "ok" and not _has_reports(args.folder):
            print(f"hangbisect report {args.folder} makes report.md", file=sys.stderr)
    else:
        print("\n".join(replay_answer(found, args.folder, terminal_width())))
    return 0


def _has_reports(folder: str) -> bool:
    from ..base.deadline import within

    try:
        return within(LIMIT, os.path.exists, os.path.join(folder, "report.md"))
    except TimeoutError:
        return False
