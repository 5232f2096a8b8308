"""W&B and the hub: where they are asked, whether they are, and what is said of the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.doctor import services
from hangbisect.doctor.services import AnswerState, Endpoint, NetworkAnswer

from .made_up import levels, said, setting

FAILING: tuple[AnswerState, ...] = (
    "silent",
    "no connection",
    "refused",
    "unreachable",
    "unknown name",
)


def test_where_wandb_is_asked_and_when_it_is_not() -> None:
    assert services.wandb({}, {}).url == "https://api.wandb.ai"
    assert services.wandb({}, {"base_url": "https://w.corp"}).url == "https://w.corp"
    assert services.wandb({"WANDB_BASE_URL": "http://x"}, {"base_url": "y"}).url == "http://x"
    assert services.wandb({"WANDB_MODE": "offline"}, {}).offline == "WANDB_MODE=offline"
    assert services.wandb({}, {"mode": "disabled"}).offline == "wandb disabled"
    assert services.wandb({"WANDB_MODE": "online"}, {"mode": "offline"}).offline == ""
    assert services.wandb({"WANDB_DISABLED": "true"}, {}).offline == "WANDB_DISABLED=true"


def test_where_the_hub_is_asked_and_when_it_is_not() -> None:
    assert services.hub({}).url == "https://huggingface.co"
    assert services.hub({"HF_ENDPOINT": "https://mirror"}).url == "https://mirror"
    assert services.hub({"HF_HUB_OFFLINE": "1"}).offline == "HF_HUB_OFFLINE=1"
    assert services.hub({"TRANSFORMERS_OFFLINE": "yes"}).offline == "TRANSFORMERS_OFFLINE=yes"
    # The first one that is set has the last word.
    assert services.hub({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}).offline == ""


@pytest.mark.parametrize("state", FAILING)
def test_a_service_that_a_job_asks_and_that_does_not_answer(state: AnswerState) -> None:
    wanted = Endpoint("https://x", wanted="x is installed here", asked=NetworkAnswer(state))
    assert levels(services.wandb_answers, wanted) == ["problem"]
    # The hub's client goes on with its cache where a connection fails at once.
    hangs = state in ("silent", "no connection")
    assert levels(services.hub_answers, wanted) == ["problem" if hangs else "warning"]
    unwanted = replace(wanted, wanted="")
    assert (
        levels(services.wandb_answers, unwanted)
        == levels(services.hub_answers, unwanted)
        == ["warning"]
    )


def test_a_service_that_answers_or_is_not_asked() -> None:
    found = Endpoint(
        "https://u:secret@x", proxy="https_proxy", asked=NetworkAnswer("answers", 0.2, "401")
    )
    ((level, value),) = said(services.wandb_answers, found)
    assert (level, value) == ("ok", "https://u:***@x answers through https_proxy in 0.2 s")
    assert levels(services.hub_answers, Endpoint("x", offline="HF_HUB_OFFLINE=1")) == ["ok"]


def test_a_service_is_asked_for_real(
    nobody: str, curt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    refused = services.read_hub(setting(HF_ENDPOINT=f"http://127.0.0.1:{nobody}"))
    assert refused.asked.state == "refused"
    ended = services.read_hub(setting(HF_ENDPOINT=f"http://127.0.0.1:{curt}"))
    assert ended.asked.state == "unreachable"
    assert services.read_hub(setting(HF_ENDPOINT="no url")).asked.state == "unreachable"
