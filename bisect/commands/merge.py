"""Put dumps that you already have together: one tree of all stacks, and the verdict.

hangbisect merge rank*.txt               one file a rank, or several ranks in one file
py-spy dump --pid 4711 | hangbisect merge -
hangbisect merge /tmp/nccl_trace_rank_*  flight recorder dumps: who never entered which collective

It takes the text of py-spy dump (with or without --native, --locals, --subprocesses; --json too),
of pystack and of faulthandler, and torch's flight recorder dumps (pickles and JSON), mixed as you
like. A rank's number comes from the text, or from the file's name; one that neither tells is "?".
"""

from __future__ import annotations

import json
import sys

from ..errors import HangbisectError, UsageError
from ..rank.argument_types import Parser
from ..rank.front import EXIT_STATUS


def run(argv: list[str]) -> int:
    """Print tree and verdict; return 3 for a hang, 0 if every rank moved between its dumps."""
    parser = Parser(prog="hangbisect merge", epilog=__doc__)
    parser.add_argument("-h", "--help", action="help", help="show this")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("files", nargs="*", metavar="FILE", help='dumps; "-" reads stdin')
    args = parser.parse_all(argv)
    if not args.files:
        raise UsageError("merge needs the files to merge", "hangbisect merge rank*.txt")

    from ..dumps.file import read_all
    from ..dumps.judging import parted, verdict_of
    from ..dumps.together import together
    from ..report.merging import merged_json, merged_lines
    from ..report.width import terminal_width

    found = read_all(args.files)
    for one in found.unreadable:
        where = f"{one.file}:{one.line}" if one.line is not None else one.file
        print(f"hangbisect: {where}: {one.fact}", file=sys.stderr)
    merged = together(found)
    if not merged.ranks:
        raise HangbisectError(
            f"no rank in {len(args.files)} file(s)", "Take one: py-spy dump --pid PID > rank0.txt"
        )
    verdict, where_parted = verdict_of(merged), parted(merged)
    if args.json:
        whole = merged_json(merged, verdict, where_parted, found.unreadable)
        print(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        print("\n".join(merged_lines(merged, verdict, where_parted, terminal_width())))
    return EXIT_STATUS[verdict.outcome]
