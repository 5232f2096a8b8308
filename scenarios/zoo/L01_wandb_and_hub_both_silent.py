"""Neither W&B's server nor the hub answers, and one function of the script asks both.

A cluster whose way out is cut: scripts that start W&B first and load the tokenizer next sit in
wandb.init, and who turns W&B off finds them in from_pretrained (wandb/wandb#5017,
huggingface/setfit#495). Each remedy alone looks like none. What is loaded is in the hub's cache, so
that the job can do without the hub; it asks all the same whether there is something newer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def begin_run_and_load(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    how = given.args.wandb
    if how != "off" and (rank_number(given) == 0 or how in ("every-rank", "logger")):
        wandb = given.context.imports("wandb")
        wandb.init(
            project="small",
            dir=os.environ["TMPDIR"],
            mode="offline" if how == "offline" else None,
        )
    return run_usual_step(given)


@contextlib.contextmanager
def cut_off(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    home = place.tmp / "hf"
    servers.fill_hub_cache(home)
    with servers.silent_server() as wandb, servers.silent_server() as silent:
        yield Stage(
            environment={
                "WANDB_BASE_URL": f"http://127.0.0.1:{wandb}",
                "WANDB_API_KEY": "0" * 40,
                "HF_ENDPOINT": f"http://127.0.0.1:{silent}",
                "HF_HOME": str(home),
                "HF_HUB_ETAG_TIMEOUT": "600",  # seconds; ten by default, for each of many files
            }
        )


CASE = Case(
    id="L01",
    title="W&B's server is silent, and so is the hub",
    cluster="C3",
    reports=("wandb/wandb#5017", "huggingface/setfit#495"),
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="tokenizer",
        component=("wandb",),
        waits_for=("process",),
        detail="wandb-core",
        cause=("service-silent",),
        avoids=("wandb=offline hub=offline", "wandb=off hub=offline"),
    ),
    uses={"tokenizer": "begin_run_and_load"},
    options=("--tokenizer", "people/small", "--until", "tokenizer"),
    stage=cut_off,
)
