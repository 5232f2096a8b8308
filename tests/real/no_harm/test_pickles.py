"""Functions of libraries stay what they are: before the watch, while it is there, and after."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hangbisect.rank.function_patching import C10D
from hangbisect.rank.watched.known_calls import KNOWN_CALLS

from .side_by_side import FAKE_TORCH, Beside, Both

FUNCTION = '''

def {name}(first, second=2, *rest, third: int = 3, **others):
    """What {name} promises."""
    return first, second, third
'''
METHODS = '''

class {name}:
    """What {name} promises."""
'''
METHOD = '''
    def {name}(self, first=1, *rest, third: int = 3, **others):
        """What it promises."""
'''


@pytest.fixture(scope="module")
def libraries() -> Iterator[Path]:
    """Packages with every call of the table, in the modules that define them, each offered by the
    packages above; and a list of them.
    """
    # Not below /tmp: programs that are compared have one of their own.
    place = Path(tempfile.mkdtemp(prefix="libraries-", dir="/var/tmp"))
    try:
        _fill(place)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _fill(place: Path) -> None:
    found: dict[str, dict[str, set[str]]] = {}
    for row in KNOWN_CALLS:
        if row.attribute and row.module not in ("argparse", C10D):
            owner, _, name = row.attribute.rpartition(".")
            found.setdefault(row.module, {}).setdefault(owner, set()).add(name)
    found.setdefault("torch.optim.optimizer", {})
    for module, owners in found.items():
        _write(place, module, owners)
    optimizer = (FAKE_TORCH / "torch/optim/optimizer.py").read_text()
    (place / "torch/optim/optimizer.py").write_text(optimizer)
    names = [
        (module, f"{owner}.{name}".strip("."))
        for module, owners in sorted(found.items())
        for owner, of_owner in sorted(owners.items())
        for name in sorted(of_owner)
    ]
    assert len(names) > 60
    (place / "names.json").write_text(json.dumps(names))


def _write(place: Path, module: str, owners: dict[str, set[str]]) -> None:
    *parents, last = module.split(".")
    for depth in range(1, len(parents) + 1):
        package = place.joinpath(*parents[:depth])
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
    own = place.joinpath(*parents, last)
    file = own / "__init__.py" if own.is_dir() else own.with_suffix(".py")
    text = file.read_text() if file.exists() else ""
    for owner, names in sorted(owners.items()):
        if owner:
            text += METHODS.format(name=owner)
        for name in sorted(names):
            text += (METHOD if owner else FUNCTION).format(name=name)
    file.write_text(text)
    for name in owners.get("", ()):  # as torch offers torch.serialization.load
        for depth in range(len(parents), 0, -1):
            above = place.joinpath(*parents[:depth]) / "__init__.py"
            offered = f"\nfrom {module} import {name} as {name}\n"
            above.write_text(above.read_text() + offered)


def _held(beside: Beside, libraries: Path, methods: bool, what: str) -> Both:
    names = json.loads((libraries / "names.json").read_text())
    chosen = [one for one in names if ("." in one[1]) is methods]

    def prepare(folder: Path) -> None:
        (folder / "cwd" / "names.json").write_text(json.dumps(chosen))

    both = beside(
        f"$RUN $PYTHON $PROGRAMS/holds.py {what}; rm names.json",
        environ={"PYTHONPATH": str(libraries)},
        prepare=prepare,
    )
    assert any("First step done" in line for line in both.watched.ours), both
    return both


@pytest.mark.parametrize("methods", [False, True], ids=["functions", "methods"])
@pytest.mark.parametrize("what", ["pickle", "copies", "looks", "code"])
def test_every_known_call_is_what_it_was_before_while_and_after(
    beside: Beside, libraries: Path, methods: bool, what: str
) -> None:
    """Its pickle; copies and identity; signature, source and documentation; its very code. Held by
    the script and by its module alike.
    """
    both = _held(beside, libraries, methods, what)
    plain, watched = both.plain.out.splitlines(), both.watched.out.splitlines()
    assert len(plain) > 3 * 8
    # From its import until the watch is over a function is itself, with another code.
    is_open = what == "code"
    plain, watched = (
        [line for line in lines if not (is_open and line.startswith(("before", "while")))]
        for lines in (plain, watched)
    )
    assert watched == plain
    both.check(*(["out"] if is_open else []))


def test_workers_that_are_spawned_get_what_the_script_holds(
    beside: Beside, libraries: Path
) -> None:
    """Spawned and forkserver's workers, a pool of processes, partial functions of them."""
    both = beside(
        "$RUN $PYTHON $PROGRAMS/spawns.py",
        environ={"PYTHONPATH": str(libraries)},
    ).check()
    assert both.plain.out.endswith("epoch 1\n"), both


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
def test_workers_of_real_torch_are_spawned_in_the_second_epoch(beside: Beside) -> None:
    both = beside(
        "$RUN $PYTHON $PROGRAMS/epochs.py",
        environ={"PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    ).check()
    assert both.plain.out == "epoch 0\nepoch 1\n", both
    assert any("First step done" in line for line in both.watched.ours), both


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="no wandb")
def test_wandbs_functions_pickle_from_the_start(beside: Beside) -> None:
    both = beside("$RUN $PYTHON $PROGRAMS/wandb_pickles.py").check()
    assert both.plain.out.count("init pickles") == 2, both
