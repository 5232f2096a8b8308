"""Who may import whom, and who may touch a process: read from the source."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

# Bottom first. A part imports from its own and from those before it, in functions too.
LAYERS = (
    *("base", "toggles", "captures", "rank", "front", "link", "pipelines", "evidence", "diagnosis"),
    *("collect", "search", "saved_log", "dumps", "report", "monitor", "trials", "attach"),
    *("nodes", "doctor", "zoo", "commands", "cli"),
)
HEAVY_PARTS = ("monitor", "evidence", "diagnosis", "report")
SIGNAL_SENDERS = {"kill", "killpg", "pidfd_send_signal", "pthread_kill", "terminate", "send_signal"}
# Each with its reason.
MAY_SEND_SIGNALS = {
    "base/client_program.py": "ends an ssh or srun of its own, once its tasks had time to end",
    "base/deadline.py": "ends its own probe, a child, when that takes too long",
    "evidence/gpus/nvml_probe.py": "ends its own children, which ask a GPU that does not answer",
    "evidence/process.py": "asks by signal 0, which is none, whether a process is there",
    "rank/exit_proxy.py": "hands on to the one child it stands for what its shell sent it",
    "rank/injections.py": "to itself, on purpose",
    "base/forks.py": "ends a child of ours that does not end in time",
    "rank/messages.py": "to itself, so that it ends by the signal it got",
    "front/command.py": "lets its own front go on, once the command goes on",
    "front/supervise.py": "hands on what was sent to it, and ends as its command ended",
    "trials/ray_queue.py": "ends a client of its own that does not end with its input",
    "trials/ray_tasks.py": "ends the tasks that it has started, once nobody wants them any more",
    "zoo/keeper.py": "ends the job of a case whose time is over, or whose starter is gone",
    "zoo/parts/processes.py": "ends a helper of a case that does not end by itself",
}
# What prints an answer. It gets rows, and facts as they are: who judges is below it.
PRESENTERS = (
    *("attach/answer.py", "attach/session.py", "commands/", "monitor/watcher_report.py"),
    *("monitor/verdict_output.py", "report/html/", "report/isolation_text.py", "report/issue_"),
    *("report/live_table.py", "report/matrix_text.py", "report/merged_dumps.py", "report/rows.py"),
    "report/node_search_text.py",
    *("report/saved_log_text.py", "report/terminal.py"),
)
# What they may take from who judges, for it judges nothing.
MAY_BE_SHOWN = {
    "process.frames.format_frame": "a frame in words",
    "wait_graph.find_components": "of any graph, for a picture",
    "wait_graph.group_targets": "the same",
    "process.merged_stacks.Branch": "stacks as a tree",
    "process.merged_stacks.StackLines": "the same",
    "process.merged_stacks.merge_stacks": "the same",
    "wait_graph.Node": "a type of what is shown",
    "wait_graph.NodeKind": "the same",
    "causes.catalogue.FAMILIES": "the catalogue itself, which `hangbisect causes` prints",
}
# Not `signal`: it has the names of the signals, and who sends is looked at below.
NO_PROCESS = {"os", "subprocess", "psutil", "multiprocessing", "socket"}


@pytest.fixture(scope="module")
def sources(package: Path) -> dict[str, ast.Module]:
    """Every module of ours, by its path in the package; the zoo's cases are jobs, not modules."""
    return {
        name: ast.parse(path.read_text(encoding="utf-8"))
        for path in package.rglob("*.py")
        if not (name := path.relative_to(package).as_posix()).startswith("zoo_cases/")
    }


@cache
def imported(file: str, tree: ast.Module, deep: bool = True) -> tuple[tuple[int, str], ...]:
    """Return line and name of all that a module imports: ours as `.rank.lines`, others as `os`.

    `deep`: also inside functions; imports for type checkers alone are never counted.
    """
    return tuple(_imported(file, tree, deep))


def _imported(file: str, tree: ast.Module, deep: bool) -> Iterator[tuple[int, str]]:
    package = Path(file).parent.parts
    for node in _walk(tree, deep):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                above = package[: len(package) - node.level + 1]
                name = "." + ".".join([*above, *(node.module or "").split(".")]).strip(".")
                yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


def _walk(node: ast.AST, deep: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if not deep and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield child
        yield from _walk(child, deep)


def part(name: str) -> str:
    """Return `rank` for `.rank.lines`, "" for a module of others."""
    return name.split(".")[1] if name.startswith(".") else ""


def test_nothing_spells_the_name_of_the_package(sources: dict[str, ast.Module]) -> None:
    spelled = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        for line, name in imported(file, tree)
        if name.partition(".")[0] in ("bisect", "hangbisect")
    ]
    assert spelled == []


def test_every_part_is_a_layer(sources: dict[str, ast.Module]) -> None:
    parts = {Path(file).with_suffix("").parts[0] for file in sources}
    assert parts - set(LAYERS) == {"__init__", "__main__", "_minus_m", "start_up"}  # the ways in


def test_imports_point_down_the_list_of_layers(sources: dict[str, ast.Module]) -> None:
    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        if (own := Path(file).with_suffix("").parts[0]) in LAYERS
        for line, name in imported(file, tree)
        if part(name) in LAYERS and LAYERS.index(part(name)) > LAYERS.index(own)
    ]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others(sources: dict[str, ast.Module]) -> None:
    """Not in functions either: who reads one of such a ring has to read them all."""
    modules = {"." + ".".join(_module_parts(file)): file for file in sources}
    needs = {
        "." + ".".join(_module_parts(file)): {
            found
            for _, name in imported(file, tree)
            if (found := name if name in modules else name.rpartition(".")[0]) in modules
        }
        for file, tree in sources.items()
    }
    rings = [sorted(ring) for ring in _rings(needs)]
    assert rings == []


def _module_parts(file: str) -> tuple[str, ...]:
    parts = Path(file).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _rings(needs: dict[str, set[str]]) -> Iterator[set[str]]:
    """Yield sets of modules that each reach all others of theirs."""
    reached = {module: _reach(module, needs) for module in needs}
    left = {module for module in needs if module in reached[module]}
    while left:
        first = min(left)
        ring = {other for other in reached[first] if first in reached.get(other, ())}
        yield ring
        left -= ring


def _reach(module: str, needs: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ask = [module]
    while ask:
        new = needs.get(ask.pop(), set()) - found
        found |= new
        ask += new
    return found


def test_who_prints_an_answer_judges_nothing(sources: dict[str, ast.Module]) -> None:
    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        if file.startswith(PRESENTERS)
        for line, name in imported(file, tree)
        if part(name) == "diagnosis" and name.removeprefix(".diagnosis.") not in MAY_BE_SHOWN
    ]
    assert wrong == []


def test_a_rank_imports_nothing_that_runs_outside_it(sources: dict[str, ast.Module]) -> None:
    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        if file.startswith("rank/")
        for line, name in imported(file, tree)
        if part(name) in HEAVY_PARTS
    ]
    assert wrong == []


def test_a_rank_before_its_steps_is_standard_library_only(sources: dict[str, ast.Module]) -> None:
    def before_the_steps(file: str) -> bool:
        top = file in ("__main__.py", "cli.py", "_minus_m.py")
        return top or file.startswith(("base/", "rank/", "commands/__init__", "commands/walk"))

    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        if before_the_steps(file)
        for line, name in imported(file, tree)
        if not name.startswith(".") and name.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert wrong == []


def test_the_front_of_a_command_imports_nothing_that_watches(
    sources: dict[str, ast.Module],
) -> None:
    allowed = {"", "front", "base", "rank"}
    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        if file.startswith("front/")
        for line, name in imported(file, tree)
        if part(name) not in allowed
    ]
    assert wrong == []


def test_the_table_of_a_pipeline_is_there_before_any_library(package: Path) -> None:
    command = [sys.executable, "-I", "-S", str(package), "--help"]  # -S: no library at all
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    assert "--inject" in asked.stdout


@pytest.mark.parametrize("folder", ["diagnosis/", "search/", "toggles/"])
def test_what_thinks_touches_no_process(folder: str, sources: dict[str, ast.Module]) -> None:
    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        if file.startswith(folder)
        for line, name in imported(file, tree)
        if name in NO_PROCESS or part(name) in ("monitor", "evidence", "rank")
    ]
    assert wrong == []


def test_a_verdict_needs_no_package_that_may_lie_on_the_disk_that_hangs(
    sources: dict[str, ast.Module],
) -> None:
    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        if file.startswith(("diagnosis/", "base/"))
        for line, name in imported(file, tree)
        if not name.startswith(".") and name.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert wrong == []


def test_nobody_but_the_way_in_imports_commands(sources: dict[str, ast.Module]) -> None:
    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        if not file.startswith("commands/") and file != "cli.py"
        for line, name in imported(file, tree)
        if part(name) == "commands" or name == "..commands"
    ]
    assert wrong == []


def test_nothing_is_imported_by_whose_presence_a_library_of_a_job_does_otherwise(
    sources: dict[str, ast.Module],
) -> None:
    """Lightning's progress bar and summary; DeepSpeed's and accelerate's question for memory."""
    wrong = [
        f"{file}:{line} {name}"
        for file, tree in sources.items()
        for line, name in imported(file, tree)
        if name.partition(".")[0] in ("rich", "pynvml")
    ]
    assert wrong == []
    needed = [one for one in importlib.metadata.requires("hangbisect") or () if "extra" not in one]
    assert {re.split(r"[<>=!~ ]", one)[0] for one in needed} == {"jinja2", "py-spy"}


def test_only_the_monitor_sends_signals(sources: dict[str, ast.Module]) -> None:
    sent = {
        file
        for file, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in SIGNAL_SENDERS
    }
    assert {file for file in sent if not file.startswith("monitor/")} <= set(MAY_SEND_SIGNALS)
