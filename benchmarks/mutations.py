"""How much the zoo's answers fall when its programs are changed as other programs would be.

Each case is run as it is, and in copies that a program changes. The truth stays, or follows:

    as is    nothing is changed
    frames   the step of the case stands behind more frames and a method
    inside   each call that the case makes in a step stands behind a function and a method more
    thread   it is in a helper thread, for which the main thread waits in Future.result()
    calls    another call for the same thing
    polls    what is read is waited for before, in poll()
    times    all times of the case are 0.5 and 4 times as long
    ranks    3 to 8 ranks, and who is at fault in the middle of them, where a case lets that be
    names    its files and the programs that it starts are called something else

What is waited for may also be the thread, or a lock in place of a sleep. A table of how many are
right (call, chain and explanation too, where a case gives them), and which are not any more. Below
it how many causes were right and wrong of those said at each level (seen, fits, guess), and which
were wrong; with --rows they are counted over all calls that were given the same file.
--sample draws so many of the cases that a mutation changes, --controls says how many of them must
not be called a hang (without it: as many as are drawn).

    python benchmarks/mutations.py [ID ...] [--only "as is,frames,inside,thread,calls,times,..."]
                                   [--sample 30 [--controls 5]] [--seed 0] [--jobs 2]
                                   [--under pipeline] [--keep DIR] [--rows FILE]
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from hangbisect.base.verdict_facts import Level
from hangbisect.zoo import case_files
from hangbisect.zoo.case_files import CaseFile
from hangbisect.zoo.comparison import find_what_is_asked

TIMES = (0.5, 4.0)
LIMIT = 3600.0  # seconds for all cases in one way
AS_IS = "as is"
MOST_WRONG = 0.05  # of the causes that fit
LEAST_LOCATED = 0.9  # of the hangs, on each mutation
_WRAPPED = """

class _Keeper:
    def __init__(self, call, given):
        self.call, self.given = call, given

    def answer(self):
        return self.call(self.given)


def _wrapped(call):
    def third(keeper):
        return keeper.answer()

    def second(given):
        return third(_Keeper(call, given))

    def first(given):
        return second(given)

    return first


"""
_INSIDE = """

class _Hand:
    def __init__(self, call):
        self.call = call

    def use(self):
        return self.call()


def _behind(call):
    return _Hand(call).use()


"""
_THREADED = """

def _wrapped(call):
    def waits(given):
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(1)
        return pool.submit(call, given).result()

    return waits


"""
# One call for another that does the same.
_CALLS = (
    (r"\btime\.sleep\(", "__import__('threading').Event().wait("),
    (r"(\w+)\.recv\((\d+)\)", r"bytes(bytearray(\1.recv_into(bytearray(\2))))"),
    (r"\bos\.read\((\w+), (\d+)\)", r"open(\1, 'rb', closefd=False, buffering=0).read(\2)"),
)
# What is read is waited for before, as whoever serves several connections does.
_POLLS = (
    (r"(\w+)\.recv\((\d+)\)", r"(_poll(\1, \1.gettimeout()), \1.recv(\2))[1]"),
    (r"\bos\.read\((\w+), (\d+)\)", r"(_poll(\1, None), os.read(\1, \2))[1]"),
)
_POLLED = """

def _poll(what, limit):
    import select

    watched = select.poll()
    watched.register(what, select.POLLIN)
    watched.poll(None if limit is None else 1000 * limit)


"""
_NUMBER = re.compile(
    r"(\btime\.sleep\(|\bsettimeout\(|\b(?:timeout|seconds|every)=|^[A-Z_]*SECONDS[A-Z_]* = )"
    r"(\d+(?:\.\d+)?)",
    re.MULTILINE,
)
_DEADLINE = re.compile(r'("--timeout", "\w+=)(\d+)"')
_PLACED = """

from hangbisect.zoo.case import place_in_world

CASE = place_in_world(CASE, ranks={ranks}, culprit={culprit})
"""
SMALLEST, LARGEST = 3, 8  # ranks
# Who takes the name of a program, and where it is called; what is joined to a path is a file.
_STARTS = ("put_on_path", "put_stuck_on_path", "run", "check_output", "check_call", "Popen")
_JOINS = ("join", "abspath", "Path", "hold_flock")
# Names that others give: of Python, of libraries, of the kernel, of shells; and nvidia-smi, whose
# place a script takes that opens a FIFO: under another name that FIFO is the cause, and is told.
_THEIRS = re.compile(
    r".*\.(?:py|json|txt|so|cpp|procs|safetensors)"
    r"|sh|bash|git|gcc|true|bin|hosts|resolv\.conf|nsswitch\.conf|site|early|lock|nvidia-smi|extensions"
    r"|hf|inductor|list"
)
_FILE = re.compile(r"[a-z][\w-]*(?:\.[a-z0-9]+)?")


def wrap(kept: CaseFile, source: str, wrapper: str) -> str:
    """Return a case's source with all its steps behind a wrapper."""
    names = sorted({name for name in kept.case.uses.values() if name.isidentifier()})
    if not names:
        return source
    return source + wrapper + "".join(f"{name} = _wrapped({name})\n" for name in names)


def replace_calls(kept: CaseFile, source: str) -> str:
    """Return a case's source with other calls for the same."""
    for before, after in _CALLS:
        source = re.sub(before, after, source)
    return source


def poll_before(kept: CaseFile, source: str) -> str:
    """Return a case's source with a poll() before each read of its own ranks."""
    made = source
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (text := ast.get_source_segment(source, node)):
            for before, after in _POLLS:
                if re.fullmatch(before, text):
                    made = made.replace(text, re.sub(before, after, text))
    return made if made == source else made + _POLLED


def put_inside(kept: CaseFile, source: str) -> str:
    """Return a case's source where each call that is a statement, or all that a statement assigns
    or returns, is made by a function and a method more.
    """
    tree = ast.parse(source)
    steps = {name for name in kept.case.uses.values() if name.isidentifier()}
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in steps]
    if not functions:
        return source
    for function in functions:
        _Behind().visit(function)
    return ast.unparse(ast.fix_missing_locations(tree)) + _INSIDE


class _Behind(ast.NodeTransformer):
    """Puts calls behind frames, but those that must stand where they stand."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node  # what is inside of a call stays there

    def _put(self, node: ast.Expr | ast.Assign | ast.Return) -> ast.AST:
        value = node.value
        if isinstance(value, ast.Call) and not _must_stay(value):
            arguments = ast.arguments([], [], None, [], [], None, [])
            called = ast.Name("_behind", ast.Load())
            node.value = ast.Call(called, [ast.Lambda(arguments, value)], [])
        return node

    visit_Expr = visit_Assign = visit_Return = _put


def _must_stay(call: ast.Call) -> bool:
    """Return whether a call means another thing in a function of its own."""
    return any(
        isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr)
        or (isinstance(node, ast.Name) and node.id in ("super", "locals", "run_usual_step"))
        for node in ast.walk(call)
    )


def scale_times(source: str, factor: float) -> str:
    """Return a case's source with its times multiplied."""
    # How long a disk is frozen is no time of the case: it is thawed so that the job can be ended.
    # A deadline that a case gives grows with its times, and does not shrink: the machine stays.
    longer = max(factor, 1.0)
    source = _DEADLINE.sub(lambda found: f'{found[1]}{float(found[2]) * longer:g}"', source)
    return "".join(
        line
        if "freeze_file_system" in line
        else _NUMBER.sub(lambda found: f"{found[1]}{float(found[2]) * factor:g}", line)
        for line in source.splitlines(keepends=True)
    )


def add_ranks(kept: CaseFile, source: str) -> str:
    """Return a case's source in a world of 3 to 8 ranks; which, its id tells."""
    goes, drawn = kept.case.culprit_goes, zlib.crc32(kept.case.id.encode())
    if not goes:
        return source
    ranks = SMALLEST + drawn % (LARGEST - SMALLEST + 1)
    middle = 1 + drawn // 7 % (ranks - 2)
    culprit = {"anywhere": middle, "first": kept.case.truth.culprit[0], "everywhere": 0}[goes]
    return source + _PLACED.format(ranks=ranks, culprit=culprit)


def rename_files(kept: CaseFile, source: str) -> str:
    """Return a case's source with other names for its files and helper programs, in its truth too;
    files have another ending as well.
    """
    needs = re.findall(
        r"^    needs=.*$", source, re.MULTILINE
    )  # names of the machine's, not its own
    for number, name in enumerate(sorted(find_own_names(ast.parse(source)), key=len, reverse=True)):
        new = f"q{zlib.crc32(name.encode()) % 10_000:04}{'abcdefgh'[number % 8]}"
        new += ".part" if "." in name else ""
        for old, other in ((name, new), (re.escape(name), re.escape(new))):
            other = other.replace("\\", r"\\")  # as re.sub wants it
            source = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w-])", other, source)
    return re.sub(r"^    needs=.*$", "".join(needs[:1]), source, flags=re.MULTILINE)


def find_own_names(tree: ast.Module) -> set[str]:
    """Return the files and programs that a case itself makes and uses, by name."""
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            words |= _strings([node.right])
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in _JOINS:
                words |= _strings(node.args)
            elif called in _STARTS:
                words |= _strings(node.args[1:] if called.startswith("put") else node.args[:1])
    return {word for word in words if _FILE.fullmatch(word) and not _THEIRS.fullmatch(word)}


def _strings(nodes: list[ast.expr]) -> set[str]:
    """Return the texts of some arguments: of a list the first word, of a mapping its keys."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.List) and node.elts:
            found |= _strings(node.elts[:1])
        elif isinstance(node, ast.Dict):
            found |= _strings([key for key in node.keys if key])
    return found


Mutation = Callable[[CaseFile, str], str]


def _scale_by(factor: float) -> Mutation:
    return lambda kept, source: scale_times(source, factor)


def _wrap_in(wrapper: str) -> Mutation:
    return lambda kept, source: wrap(kept, source, wrapper)


MUTATIONS: Mapping[str, Mutation] = {
    AS_IS: lambda kept, source: source,
    "frames": _wrap_in(_WRAPPED),
    "inside": put_inside,
    "thread": _wrap_in(_THREADED),
    "calls": replace_calls,
    "polls": poll_before,
    "ranks": add_ranks,
    "names": rename_files,
    **{f"times x {factor:g}": _scale_by(factor) for factor in TIMES},
}


def main() -> int:
    """Print the tables; return 1 if a cause called seen was wrong, more than one in twenty of those
    that fit, or a control a hang, or if of the hangs of a mutation less than 90 % were located.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--controls", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--under", default="pipeline")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    chosen = case_files.choose_cases(options.cases, case_files.load_all_cases())
    ways = [name for name in MUTATIONS if name.startswith(tuple(options.only.split(",")))]
    rows: list[dict[str, Any]] = []
    missed: list[str] = []  # mutations
    if options.rows is not None and options.rows.exists():
        rows = json.loads(options.rows.read_text())
    heads = ("located", "cause", "explained")
    cells = "  ".join(f"{head:11}" for head in heads)
    print(f"{'':12} {'changed':>7}  {cells}  seen wrong  false hangs  not right")
    for way in ways:
        answers = run(way, chosen, options)
        print(format_row(way, answers), flush=True)
        missed += [] if locates_well(answers) else [way]
        rows += [{**answer, "way": way} for answer in answers]
        if options.rows is not None:
            options.rows.write_text(json.dumps(rows, indent=1))
    print(f"\n{format_levels(rows)}")
    if missed:
        print(f"located below {LEAST_LOCATED:.0%}: {', '.join(missed)}".replace("%", " %"))
    return int(any(map(is_worst, rows)) or not fits_well(rows) or bool(missed))


def run(way: str, chosen: list[CaseFile], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of those cases that a mutation changes."""
    with tempfile.TemporaryDirectory(prefix="mutated-") as folder:
        changed = []
        for kept in chosen:
            source = kept.file.read_text(encoding="utf-8")
            made = MUTATIONS[way](kept, source)
            if made != source or way == AS_IS:
                file = Path(folder) / kept.file.name
                file.write_text(made, encoding="utf-8")
                changed.append(CaseFile(kept.case, file))
        files = [str(kept.file) for kept in draw(changed, options)]
        if not files:
            return []
        told = Path(folder) / "answers.json"
        words = [sys.executable, "-m", "hangbisect", "zoo", "run", *files, "--json", str(told)]
        words += ["--jobs", options.jobs, "--under", options.under]
        if options.keep:
            words += ["--keep", str(options.keep / way.replace(" ", "-"))]
        subprocess.run(words, stdout=subprocess.DEVNULL, timeout=LIMIT)
        rows: list[dict[str, Any]] = json.loads(told.read_text())["cases"]
        return [row for row in rows if not row["skipped"]]


def draw(cases: list[CaseFile], options: argparse.Namespace) -> list[CaseFile]:
    """Return the cases to run: all, or so many as are to be drawn, of those that run here."""
    if not options.sample:
        return cases
    chance = random.Random(options.seed)
    cases = [kept for kept in cases if not case_files.find_missing(kept.case.needs)]
    if options.controls is None:
        return chance.sample(cases, min(options.sample, len(cases)))
    well = [kept for kept in cases if find_what_is_asked(kept.case) == "control"]
    others = [kept for kept in cases if kept not in well]
    few = min(options.controls, len(well))
    many = min(max(0, options.sample - options.controls), len(others))
    return [*chance.sample(others, many), *chance.sample(well, few)]


def is_located(row: Mapping[str, Any]) -> bool:
    """Return whether rank and checkpoint are right; what is waited for may be another thing now:
    the thread, or a lock in place of a sleep.
    """
    return all(one.startswith(("waits for ", "detail ")) for one in row["wrong"])


def is_worst(row: Mapping[str, Any]) -> bool:
    """Return whether a cause that is called seen is wrong, or a control was called a hang."""
    return bool(row["cause"] == "wrong" and row["level"] == "seen") or is_false_hang(row)


def is_false_hang(row: Mapping[str, Any]) -> bool:
    """Return whether a control was called a hang."""
    return bool(row["asks"] == "control" and row["said"].get("outcome") == "hang")


def format_row(way: str, rows: list[dict[str, Any]]) -> str:
    """Return one line of the table."""
    hangs = [row for row in rows if row["asks"] == "hang"]
    located = [row for row in hangs if is_located(row)]
    caused = [row for row in rows if row["cause"]]
    right = [row for row in caused if row["cause"] == "right"]
    worded = [row for row in rows if row["explained"]]
    told = [row for row in worded if row["explained"] == "right"]
    seen = sum(row["cause"] == "wrong" and row["level"] == "seen" for row in rows)
    false = sum(map(is_false_hang, rows))
    others = [row["id"] for row in rows if row in hangs and row not in located]
    others += [f"{row['id']} ({row['said'].get('cause')})" for row in caused if row not in right]
    others += [f"{row['id']} ({'; '.join(row['untold'])})" for row in worded if row not in told]
    return (
        f"{way:12} {len(rows):7}  {share(located, hangs):11}  {share(right, caused):11}  "
        f"{share(told, worded):11}  "
        f"{seen:10}  {false:11}  {', '.join(others) or '-'}"
    )


def format_levels(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each level, and one for those of which no cause was said: how many causes
    were right and how many wrong, and which were wrong.
    """
    lines = [f"{'':8} {'right':>5}  {'wrong':>5}"]
    for level in get_args(Level):
        said = [row for row in rows if row["cause"] and row["level"] == level]
        wrong = [row for row in said if row["cause"] == "wrong"]
        right = [row for row in said if row["cause"] == "right"]
        named = ", ".join(f"{r['id']} {r['way']} ({r['said'].get('cause')})" for r in wrong)
        lines.append(f"{level:8} {len(right):5}  {len(wrong):5}  {share(right, said)}  {named}")
    unknown = [row for row in rows if row["cause"] and row["level"] is None]
    none = [row for row in unknown if row["cause"] == "right"]
    named = ", ".join(f"{row['id']} {row['way']}" for row in unknown if row not in none)
    lines.append(f"{'unknown':8} {len(none):5}  {'-':>5}  {named}")
    return "\n".join(line.rstrip() for line in lines)


def fits_well(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether at most one in twenty of the causes that are said to fit is wrong."""
    said = [row for row in rows if row["cause"] and row["level"] == "fits"]
    wrong = [row for row in said if row["cause"] == "wrong"]
    return len(wrong) <= MOST_WRONG * len(said)


def locates_well(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether at least nine in ten of the hangs of one mutation are located."""
    hangs = [row for row in rows if row["asks"] == "hang"]
    return sum(map(is_located, hangs)) >= LEAST_LOCATED * len(hangs)


def share(right: list[Any], of: list[Any]) -> str:
    """Return "41 of 43" with its percentage."""
    return f"{len(right)} of {len(of)}" + (f" {100 * len(right) // len(of)} %" if of else "")


if __name__ == "__main__":
    sys.exit(main())
