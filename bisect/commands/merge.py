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

from ..base.argument_types import Parser
from ..base.errors import HangbisectError, UsageError
from ..rank.exit_proxy import EXIT_STATUS


def run(argv: list[str]) -> int:
    """Print tree and verdict; return 3 for a hang, 0 if every rank moved between its dumps."""
    parser = Parser(prog="hangbisect merge", epilog=__doc__)
    parser.add_argument("-h", "--help", action="help", help="show this")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("files", nargs="*", metavar="FILE", help='dumps; "-" reads stdin')
    args = parser.parse_all(argv)
    if not args.files:
        raise UsageError("merge needs the files to merge", "hangbisect merge rank*.txt")

    from ..base.words import terminal_width
    from ..dumps.files import read_files
    from ..dumps.merge import describe_divergence, judge_dumps, merge_dumps
    from ..report.merged_dumps import merged_json, merged_lines

    found = read_files(args.files)
    for one in found.unreadable:
        where = f"{one.file}:{one.line}" if one.line is not None else one.file
        print(f"hangbisect: {where}: {one.fact}", file=sys.stderr)
    merged = merge_dumps(found)
    if not merged.ranks:
        raise HangbisectError(
            f"no rank in {len(args.files)} file(s)", "Take one: py-spy dump --pid PID > rank0.txt"
        )
    verdict, where_parted = judge_dumps(merged), describe_divergence(merged)
    if args.json:
        whole = merged_json(merged, verdict, where_parted, found.unreadable)
        print(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        print("\n".join(merged_lines(merged, verdict, where_parted, terminal_width())))
    return EXIT_STATUS[verdict.outcome]
