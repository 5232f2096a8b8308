"""Servers that are asked again and again, by the locals of the function that asks."""

from __future__ import annotations

import pytest
from hangbisect.base.process_facts import Frame, Socket, Thread
from hangbisect.evidence.asked_servers import (
    find_asked_url,
    find_listening,
    is_here,
    names_port,
)

ASKS = "/v/site-packages/trl/generation/vllm_client.py"
LISTENS = {
    11: Socket(11, "tcp", "0.0.0.0:8000", state="LISTEN"),
    12: Socket(12, "tcp", "10.0.0.5:22", "10.0.0.9:9", state="ESTABLISHED"),
    13: Socket(13, "udp", "127.0.0.1:8001", state="LISTEN"),
}


def thread(url: str, file: str = ASKS, tid: int = 7) -> Thread:
    frame = Frame("VLLMClient.check_server", file, 301, locals=(("url", repr(url)),))
    return Thread(tid, "MainThread", False, False, (frame,))


def test_the_address_is_read_from_the_main_threads_frame() -> None:
    url = "http://localhost:8000/health"
    assert find_asked_url(7, [thread(url)]) == url
    assert find_asked_url(7, [thread(url, tid=8)]) == ""
    assert find_asked_url(7, [thread(url, file="/home/ada/vllm_client.py")]) == ""
    assert find_asked_url(7, [thread("health"), thread("http://localhost:x/")]) == ""


@pytest.mark.parametrize(
    ("url", "inode"),
    [
        ("http://localhost:8000/health", 11),
        ("http://0.0.0.0:8000/health", 11),
        ("http://10.0.0.5:8000", 11),  # this machine has that address
        ("http://10.0.0.6:8000", None),
        ("http://localhost:8001", None),  # a socket of UDP is none
        ("http://localhost/", None),
    ],
)
def test_who_listens_is_known_for_addresses_of_this_machine(url: str, inode: int | None) -> None:
    assert find_listening(url, LISTENS) == inode


def test_a_name_that_no_socket_has_may_be_another_machine() -> None:
    assert is_here("http://[::1]:8000", {})
    assert not is_here("http://engine-0:8000", LISTENS)


@pytest.mark.parametrize(
    ("command", "port", "named"),
    [
        ("vllm serve facebook/opt --port 8123", 8123, True),
        ("python serve.py --port=8123", 8123, True),
        ("python -m sglang.launch_server --port 30001", 30000, False),
        ("python /v/bin/vllm serve facebook/opt", 8000, True),  # where it says nothing
        ("python -m sglang.launch_server --model-path m", 30000, True),
        ("python train.py 8123", 8123, False),
        ("python serve.py --port", 8000, False),
    ],
)
def test_a_command_line_tells_the_port_of_a_server(command: str, port: int, named: bool) -> None:
    assert names_port(command.split(), port) is named
