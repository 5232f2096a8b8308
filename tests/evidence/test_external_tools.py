"""What other tools left behind about the same job."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from hangbisect.evidence import external_tools

ENTRY = {
    "process_group": ("0", "default_pg"),
    "profiling_name": "nccl:all_reduce",
    "collective_seq_id": 4,
    "p2p_seq_id": 0,
    "state": "started",
    "time_created_ns": 0,
    "input_sizes": [[2]],
    "input_dtypes": ["Float"],
}


def dump(folder: Path, rank: int) -> dict[str, str]:
    """Leave a dump as torch does, and return the environment that says where."""
    prefix = folder / "trace_rank_"
    (folder / f"trace_rank_{rank}").write_bytes(pickle.dumps({"entries": [ENTRY]}, protocol=2))
    return {"TORCH_FR_DUMP_TEMP_FILE": str(prefix)}


def test_a_dump_of_this_job_is_read(tmp_path: Path) -> None:
    log = external_tools.read_recorder_dump(3, dump(tmp_path, 3), since=time.time() - 60)
    assert log is not None
    assert log.source == "flight recorder"
    assert [(o.kind, o.number, o.done) for o in log.operations] == [("all_reduce", 4, False)]


def test_numbers_of_a_recorder_that_counts_over_all_groups_say_nothing(tmp_path: Path) -> None:
    """TorchComms' writes to files of the same name."""
    named = {"TORCHCOMM_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}
    entries = [ENTRY, ENTRY | {"process_group": ("tp", ""), "collective_seq_id": 5}]
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"entries": entries}, protocol=2))
    assert external_tools.read_recorder_dump(0, named, since=time.time() - 60) is None
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"entries": entries[:1]}, protocol=2))
    assert external_tools.read_recorder_dump(0, named, since=time.time() - 60) is not None


def test_a_dump_of_an_earlier_job_is_not(tmp_path: Path) -> None:
    environment = dump(tmp_path, 3)
    os.utime(tmp_path / "trace_rank_3", (1.0, 1.0))
    assert external_tools.read_recorder_dump(3, environment, since=time.time() - 60) is None


def test_no_dump_a_pipe_or_garbage_is_nothing(tmp_path: Path) -> None:
    environment = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "rank")}
    assert external_tools.read_recorder_dump(0, environment, since=0.0) is None
    os.mkfifo(tmp_path / "rank0")
    assert external_tools.read_recorder_dump(0, environment, since=0.0) is None
    (tmp_path / "rank1").write_bytes(b"garbage")
    assert external_tools.read_recorder_dump(1, environment, since=0.0) is None


def test_without_a_place_named_torchs_own_are_looked_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert external_tools.list_dump_prefixes({}) == (
        "/cache/torch/comm_lib_trace_rank_",
        "/tmp/nccl_trace_rank_",
    )


@pytest.mark.parametrize(
    ("message", "error", "traceback"),
    [
        ("plain words", "plain words", "plain words"),
        (
            {"message": "ValueError: no\nmore", "extraInfo": {"py_callstack": "Traceback ..."}},
            "ValueError: no",
            "Traceback ...",
        ),
        ({"message": "OSError", "extraInfo": None}, "OSError", ""),
    ],
)
def test_an_error_file_tells_what_ended_a_rank(
    tmp_path: Path, message: Any, error: str, traceback: str
) -> None:
    file = tmp_path / "error.json"
    file.write_text(json.dumps({"message": message}))
    assert external_tools.read_error_file(str(file)) == external_tools.ElasticFailure(
        error, traceback
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"message": 3}', "\0"])
def test_an_error_file_of_another_kind_tells_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "error.json"
    file.write_text(text)
    assert external_tools.read_error_file(str(file)) is None
    assert external_tools.read_error_file(str(tmp_path / "none")) is None
