"""Internal commands, which no person starts: a node's monitor, the table of ranks, the reports, and
what runs on the nodes among which a bad one is searched.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import INTERNAL_ERROR, HangbisectError, UsageError, say
from ..base.loading import import_at_low_priority
from ..rank.our_folders import OWNER_LINK

if TYPE_CHECKING:
    from pathlib import Path


def monitor(argv: Sequence[str]) -> int:
    """Watch a node until its job is over. Its first rank starts this."""
    start = {"since": time.time(), **_read_orders("monitor", argv)}
    try:
        heard = None
        if start.get("delay") and _has_py_spy():
            from ..base.loading import DelayLimits
            from ..monitor.early_messages import hear_early_messages

            heard = hear_early_messages(start["listener"], DelayLimits(*start["delay"]))
        if start.get("delay") and not (heard and heard.is_needed):
            import_at_low_priority(f"{__package__.partition('.')[0]}.monitor.main")
        from ..monitor.main import main

        return main(start, heard)
    except (ImportError, MemoryError, OSError) as error:  # what it takes to begin is not there
        _leave_without_a_trace(start["folder"], error)
        return INTERNAL_ERROR


def _read_orders(name: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return what we tell an internal command: a JSON object. UsageError: a person started it."""
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(argv[0])
        if isinstance(found, dict):
            return found
    raise UsageError(
        f"{name} is a command that hangbisect starts itself, and no person does",
        "hangbisect --help lists the others.",
    )


def _has_py_spy() -> bool:
    """Return whether it is where it is installed with us. Without it ranks arm timers of their own
    for their stacks, and have to be told before they hang.
    """
    return os.access(os.path.join(os.path.dirname(sys.executable), "py-spy"), os.X_OK)


def _leave_without_a_trace(folder: str, error: Exception) -> None:
    """Remove the folder of the socket at which nobody will listen, and say so."""
    for name in ("socket", OWNER_LINK):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    say(f"the monitor could not begin ({error!r}); the job is not affected")


def live_table(argv: Sequence[str]) -> int:
    """Draw the table of ranks on a terminal until stdin ends. A monitor starts this."""
    start = _read_orders("live_table", argv)
    from ..report import live_table

    live_table.run(start["ranks"], start["launcher"])
    os._exit(0)  # at once: a monitor waits for it


def make_reports(argv: Sequence[str]) -> int:
    """Make the reports of a run that has just ended, after those of each start of an isolation or a
    matrix that went wrong. Who watched it starts this.
    """
    asked = _read_orders("make_reports", argv)
    import threading
    from pathlib import Path

    sys.path += [path for path in asked["path"] if path and path not in sys.path]
    ends = threading.Timer(asked["limit"], os._exit, (1,))  # whatever hangs, this process ends
    ends.daemon = True
    ends.start()

    from ..report import report_files

    folder = Path(asked["folder"])
    status = 0
    folders = report_files.failed_starts(folder) if asked["trials"] else []
    for one in (*folders, folder):
        try:
            report_files.make_reports(one, summary=one == folder)
        except HangbisectError:  # one without a verdict must not cost the others theirs
            status = 1
        except Exception as error:  # nobody reads our stderr, and the verdict has named the file
            _leave_a_word(one, error)
            status = INTERNAL_ERROR
    return status


def node_task(argv: Sequence[str]) -> int:
    """Run a command on this node, with others. `hangbisect nodes` starts this on each node."""
    orders = _read_orders("node_task", argv)
    from ..base.json_codec import from_json
    from ..nodes.node_task import TaskOrders, run_node_task

    return run_node_task(from_json(TaskOrders, orders))


def matrix_cell(argv: Sequence[str]) -> int:
    """Run one cell of a matrix. A task that `hangbisect matrix` queued starts this."""
    orders = _read_orders("matrix_cell", argv)
    from ..base.json_codec import from_json
    from ..trials.matrix_session import run_cell_task
    from ..trials.queued_matrix import TaskOrders

    return run_cell_task(from_json(TaskOrders, orders), int(argv[1]))


def ray_tasks(argv: Sequence[str]) -> int:
    """Start tasks on the nodes of a Ray cluster. `hangbisect matrix` and `nodes` start this."""
    orders = _read_orders("ray_tasks", argv)
    from ..base.json_codec import from_json
    from ..trials.ray_tasks import RayOrders, run_ray_tasks

    return run_ray_tasks(from_json(RayOrders, orders))


def node_probe(argv: Sequence[str]) -> int:
    """Do on this node what a job does at its start, with others. A task of a node starts this."""
    options = _read_orders("node_probe", argv)
    from ..base.json_codec import from_json
    from ..nodes.probe import ProbeOptions, run_probe

    return run_probe(from_json(ProbeOptions, options))


def _leave_a_word(folder: Path, error: Exception) -> None:
    """Write where it failed in the report's place; not with what values: they may be secrets."""
    import traceback

    from ..report.issue_sections import code_block

    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{os.path.basename(one.filename)}:{one.lineno} {one.name}" for one in frames]
    sentence = "The report could not be made; `hangbisect show` prints the verdict. Please tell us:"
    text = f"{sentence}\n\n{code_block([type(error).__name__, *where])}\n"
    with contextlib.suppress(OSError), open(folder / "report.md", "x", encoding="utf-8") as file:
        file.write(text)
