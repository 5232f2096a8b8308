"""Every known call, in the library that is installed here or in a package that is made from its
row: to whoever looks it is the same without us, while it is watched, and after.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hangbisect.rank.patches import PATCHES
from hangbisect.rank.watched.known_calls import KNOWN_CALLS

LIMIT = 300.0  # seconds for a process that imports every library
CALLS = sorted({row.where for table in (KNOWN_CALLS, PATCHES) for row in table if row.attribute})
# Looks at each call, and prints what it saw at each moment: {moment: {call: {what: value}}}.
LOOK = r'''
import copy, hashlib, importlib, inspect, io, json, multiprocessing.reduction, os, pickle, re, sys
import types, warnings
warnings.simplefilter("ignore")
stdout, sys.stdout = sys.stdout, sys.stderr

def begin():
    """Watch, steer and log, without a monitor: what is put around calls is all of it."""
    from hangbisect.rank import patches
    from hangbisect.rank.collective_log import CollectiveLog
    from hangbisect.rank.patches import PATCHES
    from hangbisect.rank.watched.rank_side import RankSide
    from hangbisect.rank.watched.steps import Steps
    from hangbisect.rank.watched.known_calls import KNOWN_CALLS
    os.environ["HANGBISECT_STEER"] = ",".join(sorted({f"{row.toggle}=?" for row in PATCHES}))
    patches.begin_patching(lambda word: None)
    side, log = RankSide(is_helper=False), CollectiveLog()
    side.steps = Steps(lambda event: None, lambda text: None)
    side.install(KNOWN_CALLS)
    log.install()
    def end():
        log.uninstall()
        side.over()
        for name in [name for name in sys.modules if "hangbisect" in name]:
            if hasattr(sys.modules[name], "QUEUE"):
                sys.modules[name].QUEUE = None
        return side, log
    return end

def found(where):
    module, _, attribute = where.partition(":")
    owner = importlib.import_module(module)
    *owners, name = attribute.split(".")
    for one in owners:
        owner = getattr(owner, one)
    return owner, name

def attempt(look, *args):
    try:
        return look(*args)
    except Exception as error:
        return re.sub("0x[0-9a-f]+", "", f"{type(error).__name__}: {error}")

def forked(value):  # as multiprocessing does for a process that it spawns
    data = io.BytesIO()
    multiprocessing.reduction.ForkingPickler(data).dump(value)
    return pickle.loads(data.getvalue()) is value

def by_cloudpickle(value):
    import cloudpickle
    return cloudpickle.loads(cloudpickle.dumps(value)) == value

def by_dill(value):  # a bound class method goes by value, with its code: there it is to work
    import dill
    size = 0 if inspect.ismethod(value) else len(dill.dumps(value))
    return size, dill.loads(dill.dumps(value)) == value

def places(function, top):
    """Return who has this very function: `from X import f` in the modules of its package."""
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == top and isinstance(module, types.ModuleType):
            for key, value in list(vars(module).items()):
                if value is function:
                    yield f"{name}.{key}"

def looks(where):
    owner, name = found(where)
    value = getattr(owner, name)
    own = vars(owner)[name]
    function = getattr(own, "__func__", own)
    code = function.__code__
    return {
        "kind": str(type(own)),
        "names": [function.__name__, function.__qualname__, function.__module__],
        "documentation": hashlib.md5(str(function.__doc__).encode()).hexdigest(),
        "attributes": sorted(vars(function)),
        "defaults": [len(function.__defaults__ or ()), sorted(function.__kwdefaults__ or ())],
        "signature": attempt(lambda: re.sub("0x[0-9a-f]+", "", str(inspect.signature(value)))),
        "parameters": code.co_varnames[: code.co_argcount + code.co_kwonlyargcount],
        "cells": code.co_freevars,
        "flags": [code.co_flags & flag for flag in (4, 8, 32, 128, 512)],
        "source": attempt(lambda: hashlib.md5(inspect.getsource(function).encode()).hexdigest()),
        "module": attempt(lambda: inspect.getmodule(function).__name__),
        "pickle": attempt(lambda: pickle.dumps(value).hex()),
        "unpickled": attempt(lambda: pickle.loads(pickle.dumps(value)) == value),
        "spawn": attempt(forked, function),
        "cloudpickle": attempt(by_cloudpickle, value),
        "dill": attempt(by_dill, value),
        "copies": [copy.copy(function) is function, copy.deepcopy(function) is function],
        "places": list(places(function, where.partition(".")[0].partition(":")[0])),
    }

calls, watched = json.loads(sys.argv[1]), sys.argv[2] == "watched"
end = begin() if watched else None
def here(where):
    owner, name = found(where)
    return vars(owner)[name]

held = {where: attempt(here, where) for where in calls}
seen = {"while": {where: attempt(looks, where) for where in calls}}
if watched:
    functions = {where: getattr(value, "__func__", value) for where, value in held.items()}
    ours = {w: "hangbisect" in one.__code__.co_filename for w, one in functions.items()}
    kept = end()
    seen["after"] = {where: attempt(looks, where) for where in calls}
    seen["ours"] = ours
    seen["same"] = {where: here(where) is held[where] for where in calls}
print(json.dumps(seen), file=stdout)
'''


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _make(module: str, attributes: Sequence[str], folder: Path) -> None:
    """Write a module with those functions and methods, and its package's `from .module import`."""
    *packages, name = module.split(".")
    for package in packages:
        folder = folder / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    lines = []
    for attribute in sorted(attributes):
        *owners, function = attribute.split(".")
        body = f"def {function}(self=None, *rest, name='x', **more): return name"
        if not owners:
            lines.append(body)
            if packages:
                with (folder / "__init__.py").open("a") as out:
                    out.write(f"from .{name} import {function}\n")
            continue
        if f"class {owners[0]}:" not in lines:
            lines.append(f"class {owners[0]}:")
        lines.append(f"    {body}")
    file = folder / name / "__init__.py" if (folder / name).is_dir() else folder / f"{name}.py"
    with file.open("a") as out:
        out.write("\n".join([*lines, ""]))


def _look(calls: list[str], how: str, folder: Path) -> dict[str, Any]:
    script = folder / "look.py"
    script.write_text(LOOK)
    environment = {name: value for name, value in os.environ.items() if "HANGBISECT" not in name}
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(calls), how],
        env={**environment, "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.timeout(2 * LIMIT + 30)
@pytest.mark.parametrize("which", ["installed", "made"])
def test_a_known_call_is_the_same_without_us_while_it_is_watched_and_after(
    which: str, tmp_path: Path
) -> None:
    here = [where for where in CALLS if _is_here(where.partition(":")[0])]
    calls = here if which == "installed" else [where for where in CALLS if where not in here]
    if which == "made":
        calls = [where for where in calls if not _is_here(where.partition(".")[0])]
        for module in sorted({where.partition(":")[0] for where in calls}):
            attributes = [where for where in calls if where.startswith(f"{module}:")]
            _make(module, [where.partition(":")[2] for where in attributes], tmp_path)
    assert calls
    plain = _look(calls, "plain", tmp_path)["while"]
    there = [where for where in calls if not isinstance(plain[where], str)]
    watched = _look(there, "watched", tmp_path)
    assert all(watched["same"].values())
    for moment in ("while", "after"):
        for where in there:
            assert watched[moment][where] == plain[where], f"{where} {moment}"
    # Otherwise this compares nothing. The functions of torch.distributed have theirs inside a
    # closure, and Lightning puts a function of its own around torch.compile.
    others = [w for w in there if "distributed_c10d:" not in w and w != "torch:compile"]
    assert [where for where in others if not watched["ours"][where]] == []
