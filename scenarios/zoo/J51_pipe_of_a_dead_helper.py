"""The helper of rank 1 is killed, and a process that it has forked keeps its end of the pipe open.

pytorch/pytorch#189290: the process that compiles died, its forked workers and the rank itself had
the writing end of its pipe, and the thread that reads the results never saw the end.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

_HELPER = """
import os, signal, time
if os.fork() == 0:
    time.sleep(600)
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def make_data(given: Any) -> Any:
    """Return the data module; rank 1 has a helper that is to prepare it."""
    import concurrent.futures
    import os
    import subprocess
    import sys
    import threading

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    module = run_usual_step(given)
    if rank_number(given) != 1:
        return module
    reader, writer = os.pipe()
    with subprocess.Popen([sys.executable, "-c", _HELPER], pass_fds=[writer]):
        prepared: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        thread = threading.Thread(
            target=lambda: prepared.set_result(os.read(reader, 100)), daemon=True
        )
        thread.start()
        prepared.result()
    return module


CASE = Case(
    id="J51",
    title="the helper of rank 1 is dead, and its end of the pipe still open",
    cluster="C12",
    reports=("pytorch/pytorch#189290",),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("thread",),
        cause=("pipe-writer-gone",),
    ),
    uses={"data_module": "make_data"},
)
