"""Toggles of inference servers: each as its framework spells it, and for that framework alone."""

from __future__ import annotations

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.toggles.command_toggles import (
    apply_setting,
    find_usable_toggles,
    format_command,
    values_as_run,
)
from hangbisect.toggles.table import TOGGLES

VLLM = "vllm serve m"
MODULE = "python -m vllm.entrypoints.openai.api_server --model m"
SGLANG = "python -m sglang.launch_server --model-path m"


def line(command: str, environ: dict[str, str] | None = None, **setting: str) -> str:
    return format_command(apply_setting(command.split(), setting, TOGGLES, environ or {}))


@pytest.mark.parametrize(
    ("command", "name", "value", "words"),
    [
        (VLLM, "eager", "on", "--enforce-eager"),
        (SGLANG, "eager", "on", "--disable-cuda-graph"),
        (VLLM, "custom_all_reduce", "off", "--disable-custom-all-reduce"),
        (SGLANG, "custom_all_reduce", "off", "--disable-custom-all-reduce"),
        (VLLM, "prefix_cache", "off", "--no-enable-prefix-caching"),
        (SGLANG, "prefix_cache", "off", "--disable-radix-cache"),
        (VLLM, "chunked_prefill", "off", "--no-enable-chunked-prefill"),
        (SGLANG, "chunked_prefill", "off", "--chunked-prefill-size -1"),
        (VLLM, "executor", "mp", "--distributed-executor-backend mp"),
        (VLLM, "executor", "ray", "--distributed-executor-backend ray"),
        (VLLM, "tensor_parallel_size", "1", "--tensor-parallel-size 1"),
        (SGLANG, "tensor_parallel_size", "2", "--tp-size 2"),
        (VLLM, "server_dtype", "float32", "--dtype float32"),
        (SGLANG, "server_dtype", "bfloat16", "--dtype bfloat16"),
        (VLLM, "attention_backend", "triton", "--attention-backend TRITON_ATTN"),
        (SGLANG, "attention_backend", "triton", "--attention-backend triton"),
        (SGLANG, "attention_backend", "fa3", "--attention-backend fa3"),
    ],
)
def test_each_framework_spells_it_in_its_way(
    command: str, name: str, value: str, words: str
) -> None:
    applied = apply_setting(command.split(), {name: value}, TOGGLES)
    assert " ".join(applied.command) == f"{command} {words}"
    assert not applied.environment
    now = values_as_run(applied.command, {}, TOGGLES)
    assert now[name] == value
    assert apply_setting(applied.command, {name: value}, TOGGLES) == applied


def test_variables_are_variables() -> None:
    said = line(VLLM, multiprocessing_method="spawn")
    assert said == f"VLLM_WORKER_MULTIPROC_METHOD=spawn {VLLM}"
    said = line("python train.py", {"LD_PRELOAD": "/x/libvgpu.so"}, preload="off")
    assert said == "LD_PRELOAD='' python train.py"


@pytest.mark.parametrize("flag", ["-tp 4", "--tensor-parallel-size=4", "--tensor_parallel_size 4"])
def test_what_says_it_already_is_read_and_replaced(flag: str) -> None:
    command = f"{MODULE} {flag} --port 1"
    assert values_as_run(command.split(), {}, TOGGLES)["tensor_parallel_size"] == "4"
    assert line(command, tensor_parallel_size="2") == f"{MODULE} --port 1 --tensor-parallel-size 2"
    assert line(f"{MODULE} --enable-prefix-caching", prefix_cache="off").endswith(
        "--model m --no-enable-prefix-caching"
    )
    assert line(f"{VLLM} --enforce-eager", eager="off") == VLLM
    assert line(f"{SGLANG} --tp 4 --dtype half", server_dtype="float32") == (
        f"{SGLANG} --tp 4 --dtype float32"
    )


def test_a_size_of_chunks_says_that_there_are_chunks() -> None:
    command = f"{SGLANG} --chunked-prefill-size 4096"
    assert values_as_run(command.split(), {}, TOGGLES)["chunked_prefill"] == "on"
    assert line(command, chunked_prefill="off") == f"{SGLANG} --chunked-prefill-size -1"
    assert line(f"{SGLANG} --chunked-prefill-size -1", chunked_prefill="on") == SGLANG


@pytest.mark.parametrize(
    ("command", "name", "why"),
    [
        ("torchrun train.py", "eager", "it starts no server of vLLM or SGLang"),
        ("python vllm_client.py", "prefix_cache", "it starts no server of vLLM or SGLang"),
        (SGLANG, "executor", "SGLang has no such setting"),
        (SGLANG, "multiprocessing_method", "SGLang has no such setting"),
    ],
)
def test_where_it_is_no_flag_of_the_command_that_is_said(command: str, name: str, why: str) -> None:
    value = {"executor": "mp", "multiprocessing_method": "spawn", "eager": "on"}.get(name, "off")
    with pytest.raises(UsageError, match=why):
        line(command, None, **{name: value})
    usable, unused = find_usable_toggles(command.split(), {}, TOGGLES)
    assert name not in {one.name for one in usable}
    assert unused[name] == why


def test_a_server_has_them_from_what_it_runs_with_to_the_safest() -> None:
    command = f"{MODULE} -tp 4 --enforce-eager".split()
    usable, unused = find_usable_toggles(command, {"LD_PRELOAD": "/x.so"}, TOGGLES)
    found = {one.name: one.values for one in usable}
    assert found["tensor_parallel_size"] == ("4", "1")
    assert found["custom_all_reduce"] == ("on", "off")
    assert found["preload"] == ("as-set", "off")
    assert "eager" in unused
    assert find_usable_toggles(command, {}, TOGGLES)[1]["preload"] == "LD_PRELOAD is not set"
