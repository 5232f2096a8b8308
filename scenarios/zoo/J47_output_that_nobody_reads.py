"""Whoever started the job has stopped reading what it prints; both ranks are in pipe_write.

hiyouga/LlamaFactory#10584: a web page started the training with stderr=PIPE and read it only at
the end. Every rank prints its settings, until 64 KiB are in the pipe.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

# A pipe as standard output whose reading end is open in the launcher, and never read.
STARTER = """
import fcntl, os, sys
reader, writer = os.pipe()
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
os.set_inheritable(reader, True)
os.dup2(writer, 1)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def unread(place: CasePlace) -> Iterator[Stage]:
    """A standard output that takes 4 KiB, and no more."""
    yield Stage(prefix=(sys.executable, "-I", "-S", "-c", STARTER))


def load_model(given: Any) -> Any:
    """Return the model, and print what it is made of."""
    from hangbisect.zoo.in_rank import run_usual_step

    model = run_usual_step(given)
    for name, parameter in model.named_parameters():
        for _ in range(20):
            print(name, tuple(parameter.shape))
    return model


CASE = Case(
    id="J47",
    title="nobody reads the job's output",
    cluster="pipes",
    reports=("hiyouga/LlamaFactory#10584", "MakazhanAlpamys/Soup#688"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="model",
        component=("model",),
        waits_for=("pipe",),
        cause=("pipe-unread",),
    ),
    stage=unread,
    uses={"model": "load_model"},
)
