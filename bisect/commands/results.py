"""The commands that read what starts left behind: show, compare, bundle, and merge for dumps."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import HangbisectError, UsageError
from ..base.words import format_bytes
from ..rank.exit_proxy import EXIT_STATUS
from ..report.issue_sections import Masked
from . import make_parser

if TYPE_CHECKING:
    from ..report.run_reader.run import RecordedRun

HELP = {
    "show": """Print the verdict of a run folder again.

hangbisect show runs/20261120T174812-a1          as it was printed when it was made
hangbisect show runs/20261120T174812-a1 --json   verdict.json
hangbisect show runs/iso-20261120T180201         the answer of an isolation, or of a matrix
""",
    "compare": """Show what differs between two starts: it worked yesterday.

hangbisect compare runs/20261119T090000-a1 runs/20261120T174812-b2           a good one, a bad one
hangbisect compare runs/20261119T090000-a1 runs/20261120T174812-b2 --json

Outcome, command, ranks, environment, versions, Python, machine, and the time of each step, phase
and import. What differs between any two starts is left out. Secrets are masked. The exit status is
that of diff: 0 the same, 1 something differs.
""",
    "bundle": """\
Put a run into one .zip for an attachment: at most 5 MiB, secrets masked, nothing is sent.

hangbisect bundle runs/20261120T174812-a1               runs/20261120T174812-a1.zip
hangbisect bundle runs/... --output hang.zip
hangbisect bundle runs/... --anonymous                  users, hosts, addresses are masked as well
hangbisect bundle runs/iso-20261120T180201              an isolation or a matrix, with its starts

In it are the reports (made fresh), verdict, stacks, environment, events, evidence, and the ends of
the job's own logs; manifest.json says what was cut, left out and masked.
""",
    "merge": """Put dumps that you already have together: one tree of all stacks, and the verdict.

hangbisect merge rank*.txt               one file a rank, or several ranks in one file
py-spy dump --pid 4711 | hangbisect merge -
hangbisect merge /tmp/nccl_trace_rank_*  flight recorder dumps: who never entered which collective
hangbisect merge slurm-4711.out          a log in which NCCL's watchdog gave up: who was behind

It takes the text of py-spy dump (with or without --native, --locals, --subprocesses; --json too),
of pystack and of faulthandler, torch's flight recorder dumps (pickles and JSON), and what NCCL's
watchdog and NCCL itself print into logs, mixed as you like. A rank's number comes from the text, or
from the file's name; one that neither tells is "?".

hangbisect merge n01/run n02/run         the run folders of nodes that share no disk: one verdict
hangbisect merge n0*/run --output whole  and one run folder of them all, for report and bundle
""",
}

SCHEMA = 1  # of compare --json
DIFFERENT = 1  # exit status, as diff(1) has it
LIMIT = 5.0  # seconds to see whether a file is there


def show(argv: list[str]) -> int:
    """Print the verdict, and on stderr what could not be read; return the exit status."""
    parser = make_parser("show", HELP["show"])
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("folder", nargs="?", metavar="RUN", help="a run folder")
    args = parser.parse_all(argv)
    if args.folder is None:
        raise UsageError("show needs a run folder", "hangbisect show runs/20261120T174812-a1")

    from ..base.json_codec import to_json
    from ..base.words import replace_unprintable, terminal_width
    from ..report.isolation_text import replay_answer
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


def compare(argv: list[str]) -> int:
    """Print what differs; return 0 if nothing does, else 1."""
    args = _compared_folders(argv)
    from ..base.json_codec import to_json
    from ..report.comparison import compare_runs
    from ..report.redaction import redact_run, redactor_for

    a, b = (_read_start(folder) for folder in args.folders)
    # One for both: the same secret has the same mark in both, and another one another.
    redactor = redactor_for(replace(a, nodes=(*a.nodes, *b.everywhere)), anonymous=args.anonymous)
    named = [replace(one, folder=Path(redactor.text(str(one.folder)))) for one in (a, b)]
    found = compare_runs(*(redact_run(one, redactor) for one in named))
    if args.json:
        print(json.dumps({"schema": SCHEMA, **to_json(found)}, indent=2, ensure_ascii=False))
    else:
        from ..base.words import terminal_size
        from ..report.comparison import comparison_lines

        print("\n".join(comparison_lines(found, *terminal_size())))
    return 0 if found.is_same else DIFFERENT


def _compared_folders(argv: list[str]) -> argparse.Namespace:
    parser = make_parser("compare", HELP["compare"])
    add = parser.add_argument
    add("--json", action="store_true", help="all that differs, as JSON")
    add("--anonymous", action="store_true", help="pseudonyms for users, homes, hosts, addresses")
    add("folders", nargs="*", metavar="RUN", help="a run folder")
    args = parser.parse_all(argv)
    if len(args.folders) != 2:
        raise UsageError(
            f"compare needs two run folders, and got {len(args.folders)}",
            "hangbisect compare runs/20261119T090000-a1 runs/20261120T174812-b2",
        )
    return args


def _read_start(folder: str) -> RecordedRun:
    from ..report.run_reader.run import read_run

    found = read_run(folder)
    if found.kind != "run":
        kind = "an isolation" if found.kind == "isolation" else "a matrix"
        raise UsageError(
            f"{folder} is the folder of {kind}",
            "compare takes single starts: name the folder of one of them, which lies in it.",
        )
    return found


def bundle(argv: list[str]) -> int:
    """Make the bundle; print where it is and what was masked. Returns the exit status."""
    parser = make_parser("bundle", HELP["bundle"])
    add = parser.add_argument
    add("--output", metavar="FILE", help="the .zip (beside the run folder, with its name)")
    add("--anonymous", action="store_true", help="pseudonyms for users, homes, hosts, addresses")
    add("--json", action="store_true", help="its manifest, as JSON")
    add("folder", nargs="?", metavar="RUN", help="the folder of a run, an isolation or a matrix")
    args = parser.parse_all(argv)
    if args.folder is None:
        raise UsageError("bundle needs a run folder", "hangbisect bundle runs/20261120T174812-a1")

    from ..report.bundle import make_bundle

    output = Path(args.output) if args.output else None
    made = make_bundle(Path(args.folder), output, anonymous=args.anonymous)
    if args.json:
        manifest = {"path": str(made.path), "bytes": made.size, **made.manifest}
        print(json.dumps(manifest, indent=2, ensure_ascii=False))
    else:
        print("\n".join(_bundle_lines(made.path, made.size, made.manifest)))
    if made.replaced_one:
        print(f"hangbisect: an earlier bundle was replaced: {made.path}", file=sys.stderr)
    for sentence in made.manifest["missing"]:
        print(f"hangbisect: {sentence}", file=sys.stderr)
    return 0


def _bundle_lines(path: Path, size: int, manifest: Mapping[str, Any]) -> Iterator[str]:
    yield f"{path}: {len(manifest['files'])} files, {format_bytes(size)}; attach it to an issue"
    found = manifest["redaction"]
    masked = Masked(found["secrets"], found["replaced"])
    yield f"masked: {masked.words or 'no secret was found'}"
    cut = [one["name"] for one in manifest["files"] if "cut" in one]
    left = len(manifest["left_out"]) + manifest["left_out_beside_these"]
    if cut or left:
        yield f"{len(cut)} cut, {left} left out: manifest.json in it says which, and why"
    yield f"look into it before you attach it: unzip -l {shlex.quote(str(path))}"


def merge(argv: list[str]) -> int:
    """Print tree and verdict; return 3 for a hang, 0 if every rank moved between its dumps. Of run
    folders print the verdict on all of them; return the status that belongs to it.
    """
    parser = make_parser("merge", HELP["merge"])
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--output", metavar="DIR", help="of run folders: all of them in one")
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help='dumps ("-" reads stdin), or run folders'
    )
    args = parser.parse_all(argv)
    if not args.files:
        raise UsageError("merge needs the files to merge", "hangbisect merge rank*.txt")
    folders = [_is_folder(name) for name in args.files]
    if all(folders):
        return _merge_folders(args)
    if any(folders):
        if absent := [name for name in args.files if name != "-" and not os.path.exists(name)]:
            raise UsageError(f"{absent[0]}: no such file or folder")
        raise UsageError(
            "merge takes run folders or files, not both",
            "The stacks of a run folder are files too: hangbisect merge RUN/stacks/rank-*.txt",
        )
    if args.output:
        raise UsageError("--output is for run folders", "hangbisect merge n01/run n02/run")

    from ..base.words import replace_unprintable, terminal_width
    from ..dumps.files import read_files
    from ..dumps.merge import describe_divergence, judge_dumps, merge_dumps
    from ..report.merged_dumps import merged_json, merged_lines

    found = read_files(args.files)
    for one in found.unreadable:
        where = f"{one.file}:{one.line}" if one.line is not None else one.file
        print(f"hangbisect: {where}: {one.fact}", file=sys.stderr)
    merged = merge_dumps(found)
    if not merged.ranks:
        for note in merged.notes:  # of logs in which nothing tells how far a rank came
            print(f"hangbisect: {replace_unprintable(note)}", file=sys.stderr)
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


def _is_folder(name: str) -> bool:
    from ..base.deadline import within

    try:
        return name != "-" and within(LIMIT, os.path.isdir, name)
    except TimeoutError:
        raise UsageError(f"{name} does not answer within {LIMIT:.0f} s") from None


def _merge_folders(args: argparse.Namespace) -> int:
    """Print the verdict on the nodes of these run folders; return the status that belongs to it."""
    from ..base.json_codec import to_json
    from ..base.words import replace_unprintable, terminal_width
    from ..report.run_reader.run import read_nodes, read_rank_facts
    from ..report.terminal import replay_verdict

    found = read_nodes(args.files)
    for sentence in found.missing:
        print(f"hangbisect: {replace_unprintable(sentence)}", file=sys.stderr)
    if found.verdict is None:
        raise UsageError(f"{', '.join(args.files)}: no verdict that can be read")
    where = ""
    if args.output:
        _copy_nodes(args.files, Path(args.output))
        where = args.output
    if args.json:
        print(json.dumps(to_json(found.verdict), indent=2, ensure_ascii=False))
    else:
        ranks = read_rank_facts(found)
        print("\n".join(replay_verdict(found.verdict, where, terminal_width(), ranks)))
        if where:
            print(f"hangbisect report {shlex.quote(where)} makes report.md")
    return EXIT_STATUS[found.verdict.outcome]


def _copy_nodes(folders: Sequence[str], output: Path) -> None:
    """Copy run folders into one, as those of its nodes 0, 1, ..."""
    try:
        if output.exists() and any(output.iterdir()):
            raise UsageError(f"{output} is not empty", "Name a folder that is not there yet")
        output.mkdir(parents=True, exist_ok=True)
        for number, folder in enumerate(folders):
            shutil.copytree(folder, output / f"node-{number}", symlinks=True)
    except (OSError, shutil.Error) as error:
        raise HangbisectError(f"{output} cannot be written: {error}") from None
