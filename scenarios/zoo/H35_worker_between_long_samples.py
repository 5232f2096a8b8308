"""Control: a DataLoader worker needs seven seconds for each sample, most of it for one request.

The rank waits for its worker in poll(), the worker for a helper that answers over a pipe: nothing
of either runs in between, and yet the batches come.
"""

from __future__ import annotations

import subprocess
from typing import Any

from hangbisect.zoo.case import Case, Truth

CUTTER = "while read n; do sleep 6; echo $n; done"


def data_module(given: Any) -> Any:
    import torch
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    class Clips(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> int:
            with subprocess.Popen(
                ["sh", "-c", CUTTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as child:
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write(f"{index}\n".encode())
                child.stdin.close()
                return int(child.stdout.readline())

    if rank_number(given) == 0:
        for clip in torch.utils.data.DataLoader(Clips(), num_workers=1):
            assert clip is not None
    return run_usual_step(given)


CASE = Case(
    id="H35",
    title="control: a worker that takes long for each sample",
    cluster="control",
    reports=("pytorch/pytorch#75147",),
    truth=Truth(outcome="ok", slow="data_module"),
    uses={"data_module": "data_module"},
    options=("--timeout", "data_module=15", "--until", "data_module"),
    limit=240.0,
)
