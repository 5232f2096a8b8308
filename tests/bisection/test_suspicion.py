"""What a verdict says about where to search."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.verdict_facts import HangPlace
from hangbisect.search.isolation import (
    ObservedHang,
    host_in_question,
    is_cache_lock,
    likely_toggles,
    observe_hang,
)
from hangbisect.toggles.table import TOGGLES

PLACE = HangPlace("wandb_logger", call="wandb.init", component="wandb")
SEEN = ObservedHang(PLACE, 9, "WandbLogger ready", (0,), None, "", "wandb", ("proxy", "wandb"))


def test_what_the_verdict_says_to_try_comes_before_the_rest_of_the_component() -> None:
    assert likely_toggles(TOGGLES, SEEN) == ("proxy", "wandb")
    data = replace(SEEN, component="data", tries=("worker_start", "unheard_of"))
    names = likely_toggles(TOGGLES, data)
    assert names[0] == "worker_start"
    assert "num_workers" in names
    assert "unheard_of" not in names


def test_a_verdict_that_cannot_be_read_tells_nothing() -> None:
    seen = observe_hang(None, HangPlace(None))
    assert (seen.number, seen.culprit, seen.tries, seen.cause) == (None, (), (), None)
    assert likely_toggles(TOGGLES, seen) == ()


@pytest.mark.parametrize(
    ("component", "environ", "host"),
    [
        ("wandb", {}, "api.wandb.ai"),
        ("wandb", {"WANDB_BASE_URL": "http://127.0.0.1:8080"}, "127.0.0.1"),
        ("hub", {}, "huggingface.co"),
        ("strategy", {}, None),
        (None, {}, None),
    ],
)
def test_the_host_in_question(component: str | None, environ: dict[str, str], host: str) -> None:
    assert host_in_question(replace(SEEN, component=component), environ) == host


@pytest.mark.parametrize(
    ("waits_for", "cause", "detail", "suspected"),
    [
        ("lock", None, "/home/a/.cache/huggingface/hub/.locks/m.lock", True),
        ("file", "stale-build-lock", "/home/a/.cache/torch_extensions/py311/x/lock", True),
        ("lock", None, "/scratch/mine/m.lock", True),  # HF_HOME is there
        ("lock", None, "/home/a/project/train.lock", False),
        ("socket", None, "/home/a/.cache/huggingface/x", False),
    ],
)
def test_a_lock_in_a_cache(waits_for: str, cause: str | None, detail: str, suspected: bool) -> None:
    seen = replace(SEEN, waits_for=waits_for, cause=cause, detail=detail)
    assert is_cache_lock(seen, {"HF_HOME": "/scratch/mine"}) is suspected
