"""Proxies, and what no_proxy excepts: variables in, findings out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.doctor import services
from hangbisect.doctor.services import AnswerState, NetworkAnswer, is_excepted, named_proxies
from hypothesis import given
from hypothesis import strategies as st

from .made_up import levels, said, setting

FAILING: tuple[AnswerState, ...] = (
    "silent",
    "no connection",
    "refused",
    "unreachable",
    "unknown name",
)


def test_each_proxy_is_named_once_with_its_variables() -> None:
    found = named_proxies(
        {
            "http_proxy": "http://user:secret@proxy.corp:3128",
            "HTTPS_PROXY": "proxy.corp:3128",
            "all_proxy": "socks5://other:1080",
        }
    )
    assert [(one.host, one.port, one.scheme) for one in found] == [
        ("proxy.corp", "3128", "http"),
        ("other", "1080", "socks5"),
    ]
    assert found[0].variables == ("HTTPS_PROXY", "http_proxy")
    assert named_proxies({"http_proxy": ""}) == ()


@pytest.mark.parametrize("state", FAILING)
def test_a_proxy_that_does_not_answer_is_a_problem_and_its_password_is_not_told(
    state: AnswerState,
) -> None:
    environ = {"https_proxy": "http://user:secret@proxy.corp:3128"}
    facts = tuple(replace(one, asked=NetworkAnswer(state)) for one in named_proxies(environ))
    ((level, value),) = said(services.judge_answers, facts, setting(**environ))
    assert level == "problem"
    assert "proxy.corp:3128 (https_proxy)" in value
    assert "secret" not in value


def test_two_spellings_that_differ_are_a_warning() -> None:
    environ = {"http_proxy": "http://a:1", "HTTP_PROXY": "http://u:secret@b:1"}
    found = said(services.judge_answers, named_proxies(environ), setting(**environ))
    assert [level for level, _ in found] == ["ok", "ok", "warning"]
    assert "secret" not in str(found)


def test_a_proxy_is_asked_for_real(nobody: str, curt: str) -> None:
    refused = services.read_proxies(setting(http_proxy=f"127.0.0.1:{nobody}"))
    assert [one.asked.state for one in refused] == ["refused"]
    ended = services.read_proxies(setting(all_proxy=f"socks5://127.0.0.1:{curt}"))
    assert [one.asked.state for one in ended] == ["answers"]


@pytest.mark.parametrize(
    ("host", "exceptions", "excepted"),
    [
        ("localhost", "localhost,127.0.0.1", True),
        ("n01.cluster", ".cluster", True),
        ("n01.cluster", "cluster", True),
        ("n01.cluster", "luster", False),
        ("n01", "*", True),
        ("N01", "n01", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "11.0.0.0/8", False),
        ("n01", "", False),
        ("n01", " n01 , x", True),
    ],
)
def test_what_no_proxy_excepts(host: str, exceptions: str, excepted: bool) -> None:
    assert is_excepted(host, exceptions) == excepted


@given(st.text(max_size=20), st.text(".,*/:0123456789abc ", max_size=30))
def test_any_text_is_taken_for_exceptions(host: str, exceptions: str) -> None:
    is_excepted(host, exceptions)
    if host and not host.startswith(".") and "," not in host and host == host.strip():
        assert is_excepted(host, f"{exceptions},{host}")


def test_no_proxy_must_except_this_machine_and_rank_0() -> None:
    assert levels(services.judge_exceptions, None) == ["ok"]
    ((level, value),) = said(
        services.judge_exceptions,
        None,
        setting(http_proxy="p:1", no_proxy="localhost", MASTER_ADDR="n01"),
    )
    assert (level, "127.0.0.1, n01" in value) == ("warning", True)
    every = setting(http_proxy="p:1", NO_PROXY="localhost,127.0.0.0/8,n01", MASTER_ADDR="n01")
    assert levels(services.judge_exceptions, None, every) == ["ok"]
