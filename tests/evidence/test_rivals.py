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
from hypothesis import given, settings
from hypothesis import strategies as st

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
# As jsonWriteRankData and the others of NCCL's src/ras/client_support.cc write it.
RAS = {
    "nccl_version": "2.28.3",
    "communicators_count": 1,
    "communicators": [
        {
            "hash": "0x1f",
            "size": 4,
            "ranks_count": 3,
            "missing_ranks_count": 1,
            "ranks": [
                {
                    "rank": rank,
                    "host": "10.0.0.1",
                    "pid": 100 + rank,
                    "status": {"init_state": 0, "async_error": 0},
                    "collective_counts": {"AllReduce": 7 + (rank == 2), "Broadcast": 1},
                }
                for rank in (0, 1, 2)
            ],
            "missing_ranks": [{"rank": 3, "pid": 103, "status": {"unresponsive": True}}],
        }
    ],
    "ras": {"collection_time_sec": 0.1, "timeouts_count": 0},
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


def test_ras_says_who_is_missing_and_who_is_behind() -> None:
    assert external_tools.describe_ras(RAS) == (
        "NCCL RAS: communicator 0x1f of 4 misses rank 3",
        "NCCL RAS: communicator 0x1f of 4 has begun 7 AllReduce, but rank 2: 8",
    )


def test_a_communicator_of_another_job_is_passed_over() -> None:
    assert external_tools.describe_ras(RAS, pids=[4711]) == ()
    assert external_tools.describe_ras(RAS, pids=[101])


def test_the_program_is_asked_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ncclras"
    answer = tmp_path / "answer"
    answer.write_text(json.dumps(RAS))
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {answer}\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = external_tools.ask_ras({"NCCL_RAS_ADDR": "10.0.0.7:28029"}, [101], limit=30.0)
    assert len(said) == 2
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:6] == ["-h", "10.0.0.7", "-p", "28029", "-f", "json"]
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    assert external_tools.ask_ras({}, limit=0.2) == ()
    program.unlink()
    assert external_tools.ask_ras({}) == ()


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["communicators", "ranks", "rank"]), inner)
        ),
    )
)
def test_whatever_ras_answers_nothing_is_raised(answer: Any) -> None:
    external_tools.describe_ras(answer)
    external_tools.describe_ras({"communicators": [answer]})
    external_tools.describe_ras({"communicators": [RAS["communicators"][0] | {"ranks": answer}]})  # type: ignore[index]
