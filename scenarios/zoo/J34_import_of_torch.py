"""`import torch` itself hangs: an installed package has it load a device's backend, which waits.

Since 2.5 torch imports the entry points "torch.backends" of whatever is installed
(pytorch/pytorch PR 127074; TORCH_DEVICE_BACKEND_AUTOLOAD=0 leaves them out). Here such a
backend waits for its device's lock. No line of the job's own has been reached.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

THEIRS_BACKEND = """
import fcntl, os

def autoload():
    device = open(os.environ["NEWCHIP_DEVICE"], "a")
    fcntl.flock(device, fcntl.LOCK_EX)
"""


@contextlib.contextmanager
def installed(place: CasePlace) -> Iterator[Stage]:
    """A backend that torch finds, and a device that somebody else has."""
    from hangbisect.zoo.parts import processes

    site = place.folder / "site"
    about = site / "torch_newchip-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "torch_newchip.py").write_text(THEIRS_BACKEND)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-newchip\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[torch.backends]\nnewchip = torch_newchip:autoload\n")
    device = place.tmp / "newchip0"
    with processes.hold_flock(device):
        # For the ranks only: torchrun imports torch too.
        ranks_only = "import os, site\nif 'RANK' in os.environ: site.addsitedir({!r})\n"
        early = place.folder / "early"
        early.mkdir()
        (early / "sitecustomize.py").write_text(ranks_only.format(str(site)))
        yield Stage(environment={"PYTHONPATH": str(early), "NEWCHIP_DEVICE": str(device)})


CASE = Case(
    id="J34",
    title="import torch waits for a device's lock",
    cluster="C20",
    reports=("pytorch/pytorch PR 127074", "Garden-AI/rootstock#167"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="tokenizer",
        component=("hub", "interpreter", "accelerator"),
        waits_for=("lock",),
        detail="newchip0",
        cause=("file-lock-held",),
    ),
    stage=installed,
)
