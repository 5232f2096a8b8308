"""Run a job under one setting after the other, from a scenario file, and say how each ended.

hangbisect matrix recommended          one of ours, by name; any other by its path
hangbisect matrix my.yaml --jobs 2     cells side by side, kept apart
hangbisect matrix my.yaml --dry-run    print the commands, ready to paste, and start nothing
hangbisect matrix --resume DIR         go on after an interruption; what is done is not repeated

Exit status: 0 all well; 3 a hang; 5 a crash, or a cell that could not be judged; 4 none of these,
but a cell came to its limit while it still moved; 130 interrupted.
"""

from __future__ import annotations

from ..base.argument_types import Parser, count


def run(argv: list[str]) -> int:
    """Run the cells of a scenario; return the status of the worst."""
    from ..trials.matrix_session import MatrixRequest, run_matrix

    args = _parser().parse_all(argv)
    return run_matrix(
        MatrixRequest(
            file=args.file,
            jobs=args.jobs,
            resume=args.resume,
            run_dir=args.run_dir,
            dry_run=args.dry_run,
            plain=args.plain,
            json=args.json,
        )
    )


def _parser() -> Parser:
    parser = Parser(prog="hangbisect matrix", epilog=__doc__)
    add = parser.add_argument
    add("-h", "--help", action="help", help="show this")
    add("file", nargs="?", metavar="FILE", help="a scenario file, or the name of one of ours")
    add("--jobs", metavar="N", type=count("--jobs", 1), default=1, help="cells side by side (1)")
    add("--resume", metavar="DIR", help="go on with the matrix in DIR; repeat no cell that is done")
    add("--dry-run", action="store_true", help="print the commands, and start nothing")
    add("--run-dir", metavar="DIR", help="the matrix's folder (runs/<UTC time>-matrix-<name>)")
    add("--plain", action="store_true", help="lines in the place of a table that moves; no colours")
    add("--json", action="store_true", help="what matrix.json holds on standard output")
    return parser
