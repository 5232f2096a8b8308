"""Drivers, NCCL's service, recorders and the libraries' files are asked once something stands
still, and by nobody else: who may call what asks them is listed here, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hangbisect

PACKAGE = Path(str(hangbisect.__file__)).parent
ASKING = {
    *("read_machine", "read_gpus", "read_amd_gpus", "ask_ras", "add_recorder_dumps"),
    *("read_library_facts", "add_gpu_kernels", "read_gpu_errors", "read_native_threads"),
}
ALLOWED = {
    "monitor/inquiry.py": "a clock ran out: the first look",
    "monitor/judgement.py": "a job went wrong",
    "monitor/job_facts.py": "the same",
    "monitor/watcher_verdict.py": "the watcher gives a verdict",
    "attach/job_looks.py": "a person asks about a job, at the first look",
    "attach/node_facts.py": "the same, where no rank moves",
    "doctor/devices.py": "a person asks for the machine",
    "trials/resources.py": "before a start of a matrix, where no job runs yet",
    "evidence/machine.py": "what asks itself",
}


def list_calls(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        # call_with_limit(read_gpu_errors, ...) calls it as well.
        names = [node] if isinstance(node, ast.Name | ast.Attribute) else []
        for one in names:
            name = one.id if isinstance(one, ast.Name) else one.attr
            if name in ASKING and isinstance(one.ctx, ast.Load):
                yield name


def test_nobody_asks_but_who_is_listed() -> None:
    asking = set()
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if any(name in source for name in ASKING) and any(list_calls(source)):
            asking.add(path.relative_to(PACKAGE).as_posix())
    assert asking == set(ALLOWED)


def test_a_job_that_moves_is_not_asked_by_attach() -> None:
    """Each question in `_make_node_facts` has the condition that nothing moves."""
    tree = ast.parse((PACKAGE / "attach/node_facts.py").read_text())
    body = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "_make_node_facts"
    )
    conditions = [
        ast.unparse(node.test) for node in ast.walk(body) if isinstance(node, ast.If | ast.IfExp)
    ]
    assert conditions.count("settled.moving") + conditions.count("not settled.moving") == 3
    # What a person asks for besides is nothing where something moves (`look_at_job`).
    assert {"wanted.gpu_stacks", "wanted.native_threads"} <= {*conditions}
    looks = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "look_at_job"
    )
    assert "Wanted() if wanted is None or settled.moving else wanted" in ast.unparse(looks)
