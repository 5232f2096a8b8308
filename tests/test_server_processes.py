"""What the titles of processes of inference servers say."""

from __future__ import annotations

import pytest
from hangbisect.base.process_roles import find_server_process, name_server_process, number_ranks


@pytest.mark.parametrize(
    ("words", "name", "is_rank"),
    [
        (["VLLM::Worker_TP1"], "Worker_TP1", True),
        (["VLLM::Worker_PP0_TP1   "], "Worker_PP0_TP1", True),
        (["VLLM::Worker_DP1_TP0_EP2"], "Worker_DP1_TP0_EP2", True),
        (["VLLM::EngineCore_DP0"], "EngineCore_DP0", False),
        (["VLLM::EngineCore"], "EngineCore", False),
        (["VLLM::DPCoordinator"], "DPCoordinator", False),
        (["sglang::scheduler_TP0"], "scheduler TP0", True),
        (["sglang::scheduler_DP0_TP2"], "scheduler DP0 TP2", True),
        (["sglang::scheduler"], "scheduler", True),
        (["sglang::detokenizer"], "detokenizer", False),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], "API server", False),
        (["/v/bin/python", "/v/bin/vllm", "serve", "m"], "API server", False),
        (["python3", "-m", "sglang.launch_server"], "SGLang's server", False),
        (["python", "/v/bin/trtllm-serve", "serve", "m"], "TensorRT-LLM's server", False),
        (["python", "/v/bin/trtllm-serve", "m", "--port", "8001"], "TensorRT-LLM's server", False),
    ],
)
def test_a_process_of_a_server_is_known(words: list[str], name: str, is_rank: bool) -> None:
    found = find_server_process(words)
    assert found is not None
    assert (found.name, found.is_rank, found.is_spawned) == (name, is_rank, "::" in words[0])


@pytest.mark.parametrize(
    "words",
    [
        [],
        [""],
        ["python", "train.py"],
        ["ray::Worker.run"],
        ["python", "-m", "vllm.benchmarks"],
        ["tail", "-f", "vllm"],
        ["VLLM::Workerbench"],
    ],
)
def test_any_other_process_is_in_none(words: list[str]) -> None:
    assert find_server_process(words) is None


def test_a_title_of_one_word_is_told_whole_and_any_other_as_the_kernel_has_it() -> None:
    assert name_server_process(["MyServer::Coordinator"], "MyServer::Coord") == (
        "MyServer::Coordinator"
    )
    for words, name in (
        (["[tool worker] idle and more"], "[tool worker] i"),
        (["/usr/bin/python3.11", "serve.py"], "python3.11"),
        (["other"], "MyServer::Coord"),
    ):
        assert name_server_process(words, name) == name


def test_one_that_has_died_is_named_by_what_the_kernel_has_kept_of_its_title() -> None:
    assert name_server_process([], "sglang::detoken") == "detokenizer"
    assert name_server_process([], "VLLM::EngineCor") == "EngineCore"
    assert name_server_process([], "VLLM::Worker_TP") == "VLLM::Worker_TP"


def ranks_of(*titles: str) -> dict[int, int]:
    found = {pid: find_server_process([title]) for pid, title in enumerate(titles, 100)}
    return number_ranks({pid: one for pid, one in found.items() if one is not None})


def test_the_number_of_tensor_parallelism_is_the_rank_also_where_some_are_gone() -> None:
    assert ranks_of("VLLM::Worker_TP3", "VLLM::Worker_TP1") == {100: 3, 101: 1}


def test_stages_of_a_pipeline_count_before_what_is_inside_of_them() -> None:
    titles = ("VLLM::Worker_PP1_TP0", "VLLM::Worker_PP0_TP1", "VLLM::Worker_PP0_TP0")
    assert ranks_of(*titles, "VLLM::Worker_PP1_TP1") == {102: 0, 101: 1, 100: 2, 103: 3}


def test_two_of_the_same_title_have_no_numbers() -> None:
    assert ranks_of("VLLM::Worker_TP0", "VLLM::Worker_TP0") == {}
