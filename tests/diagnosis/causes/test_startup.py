"""What all ranks do at the same moment, or one of them alone."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Thread

from ..made_up import ALL_REDUCE, SLEEP, WANDB, gone, job, look, rank, stack
from .scenes import TORCHRUN, Facts, Shows, causes_of, on, tcp, with_locals

ASKS_HUB = look(
    "SSLSocket.read STD/ssl.py:1166",
    "Client.send SP/httpx2/_client.py:914",
    "_http_backoff_base SP/huggingface_hub/utils/_http.py:537",
    "cached_files SP/transformers/utils/hub.py:420",
    "from_pretrained SP/transformers/models/auto/tokenization_auto.py:680",
    "<module> train.py:9",
    call="recvfrom",
)
SILENT = tcp("18.1.2.3:443", received=0)
READS = look("x train.py:1", call="recvfrom", descriptors=on(SILENT))
CHOOSES = look(
    "_AcceleratorConnector._choose_strategy "
    "SP/pytorch_lightning/trainer/connectors/accelerator_connector.py:401",
    "Trainer.__init__ SP/pytorch_lightning/trainer/trainer.py:410",
    "<module> train.py:20",
)


def wandb_on_every_rank() -> Facts:
    loop = Thread(300, "wandb-AsyncioManager-main", False, False, stack("run STD/asyncio/x.py:9"))
    one = replace(WANDB, threads=(*WANDB.threads, loop))
    return job(), [rank(n, one, environment=TORCHRUN) for n in (0, 1)]


def strategy_auto() -> Facts:
    return job(), [rank(n, CHOOSES) for n in (0, 1)]


def logs_directory_race() -> Facts:
    error = "FileExistsError: [Errno 17] File exists: '/nfs/run/logs'"
    told = 'File "train.py", line 4, in <module>\n  os.makedirs("/nfs/run/logs")'
    ranks = [rank(0, SLEEP), gone(1, 1, error, left_at=90.0, traceback=told)]
    return job("crash"), ranks


def hub_stampede() -> Facts:
    said = "Rate limited. Waiting 207.0s before retry [Retry 1/5]."
    return job(), [rank(n, ASKS_HUB, output=(said,)) for n in (0, 1)]


SHOWS: Shows = {
    "wandb-on-every-rank": wandb_on_every_rank,
    "strategy-auto": strategy_auto,
    "logs-directory-race": logs_directory_race,
    "hub-stampede": hub_stampede,
}


def test_wandb_on_one_rank_is_not_on_every_rank() -> None:
    assert "wandb-on-every-rank" not in causes_of((job(), [rank(0, WANDB), rank(1, ALL_REDUCE)]))


def test_a_silent_server_says_more_than_many_that_ask_it() -> None:
    server = tcp("127.0.0.1:18080", received=0)
    core = (look(pid=4899, ppid=100, name="wandb-core", call="", sockets=(server,)),)
    found = causes_of((job(), [rank(0, WANDB, children=(core,)), rank(1, WANDB)]))
    assert found["service-silent"].agreement > 0.8 > found["wandb-on-every-rank"].agreement


def test_a_command_that_names_a_strategy_leaves_none_to_lightning() -> None:
    command = ("torchrun", "-m", "bisect", "--strategy", "ddp")
    ranks = [rank(n, CHOOSES) for n in (0, 1)]
    assert "strategy-auto" not in causes_of((job(command=command), ranks))
    auto = (*command[:-1], "auto")
    assert "strategy-auto" in causes_of((job(command=auto), ranks))


def test_ranks_in_worlds_of_their_own_make_a_strategy_more_likely() -> None:
    told = [with_locals(CHOOSES, "Trainer.__init__"), ASKS_HUB]
    plain = causes_of((job(), [rank(0, told[0]), rank(1, CHOOSES)]))["strategy-auto"].agreement
    group = look(
        "_create_c10d_store SP/torch/distributed/rendezvous.py:199",
        "Trainer.fit SP/pytorch_lightning/trainer/trainer.py:584",
        call="poll",
    )
    alone = with_locals(group, "_create_c10d_store", rank=0, world_size=1)
    both = with_locals(group, "_create_c10d_store", rank=0, world_size=2)
    mixed = [rank(0, CHOOSES), rank(1, alone), rank(2, both)]
    assert causes_of((job(world=3), mixed))["strategy-auto"].agreement > plain


def test_a_directory_of_one_rank_is_no_race() -> None:
    error = "FileExistsError: [Errno 17] File exists: '/nfs/run/logs'"
    assert "logs-directory-race" not in causes_of((job("crash", world=1), [gone(0, 1, error)]))


def test_ranks_that_make_one_directory_are_seen_in_their_system_calls() -> None:
    makes = look("makedirs <frozen os>:225", "<module> train.py:4", call="mkdir", path="/nfs/logs")
    ranks = [rank(n, makes) for n in (0, 1)]
    assert "/nfs/logs" in causes_of((job(), ranks))["logs-directory-race"].why
    others = [rank(0, makes), rank(1, replace(SLEEP))]
    assert "logs-directory-race" not in causes_of((job(), others))


def test_one_rank_that_asks_the_hub_is_no_stampede() -> None:
    found = causes_of((job(), [rank(0, ASKS_HUB), rank(1, ALL_REDUCE)]))
    assert "hub-stampede" not in found


def test_a_silent_hub_says_more_than_many_that_ask_it() -> None:
    asks = replace(ASKS_HUB, sockets=(SILENT,), kernel=READS.kernel)
    found = causes_of((job(), [rank(n, asks) for n in (0, 1)]))
    assert found["hub-silent"].agreement > found["hub-stampede"].agreement
