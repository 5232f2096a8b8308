"""Where the server of a command says that it is ready."""

from __future__ import annotations

import pytest
from hangbisect.base.server_endpoints import find_endpoint


@pytest.mark.parametrize(
    ("command", "port", "path"),
    [
        ("vllm serve m -tp 2", 8000, "/health"),
        ("vllm serve m --port 9001", 9001, "/health"),
        ("python -m vllm.entrypoints.openai.api_server --model m --port=81", 81, "/health"),
        ("python3 -m sglang.launch_server --model-path m", 30000, "/health"),
        ("mpirun -n 2 trtllm-serve serve m --port 8355", 8355, "/health"),
        ("/v/bin/trtllm-serve m", 8000, "/health"),
        ("serve run app:app", 8000, "/-/healthz"),
        ("text-generation-launcher --model-id m -p 1", 3000, "/health"),
        ("llama-server -m m.gguf --port 8081", 8081, "/health"),
        ("python serve.py --port 8080", 8080, ""),
        ("./engine --port 5000", 5000, ""),
        ("torchrun --nproc_per_node=2 serve.py --port 8080", 8080, ""),
    ],
)
def test_the_port_of_a_server_is_that_of_its_command_or_its_own(
    command: str, port: int, path: str
) -> None:
    found = find_endpoint(command.split())
    assert found is not None
    assert (found.port, found.path) == (port, path)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "python train.py",
        "torchrun --nproc_per_node=2 train.py --lr 0.1",
        "torchrun --port 29500 train.py",  # of a launcher: where ranks meet
        "python serve.py --port auto",
        "python serve.py --port 0",
        "python serve.py --port 70000",
        "serve build app:app",
    ],
)
def test_any_other_command_has_none(command: str) -> None:
    assert find_endpoint(command.split()) is None
