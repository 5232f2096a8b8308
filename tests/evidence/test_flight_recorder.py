"""Dumps of torch's flight recorder: the format, and what is none."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.collectives.collective_mismatch import list_logged_groups
from hangbisect.evidence.gpus.flight_recorder import counts_all_together, load_dump, parse_dump
from hypothesis import given, settings
from hypothesis import strategies as st

# As torch 2.13 writes it for gloo (state, retired), and torch.distributed.flight_recorder's tests
# for NCCL.
GLOO = {
    "version": "2.10",
    "entries": [
        {
            "collective_seq_id": 1,
            "input_dtypes": ["Float"],
            "input_sizes": [[4, 8]],
            "is_p2p": False,
            "op_id": 1,
            "output_dtypes": ["Float"],
            "output_sizes": [[4, 8]],
            "p2p_seq_id": 0,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:all_reduce",
            "record_id": 0,
            "retired": True,
            "state": "scheduled",
            "time_created_ns": 1_795_212_973_078_253_527,
        },
        {
            "collective_seq_id": 2,
            "input_dtypes": [],
            "input_sizes": [],
            "is_p2p": False,
            "output_dtypes": [],
            "output_sizes": [],
            "p2p_seq_id": 0,
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:barrier",
            "record_id": 1,
            "retired": False,
            "state": "scheduled",
            "time_created_ns": 1_795_212_973_080_561_307,
        },
    ],
    "pg_config": {"": {"desc": "", "name": "", "ranks": "[]"}},
    "pg_status": {"0": {"last_completed_collective": "1", "last_enqueued_collective": "2"}},
}
NCCL_ENTRY = {
    "frames": [
        {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/x.py", "line": 1},
        {"name": "barrier", "filename": "/v/site-packages/pytorch_lightning/ddp.py", "line": 308},
        {"name": "on_fit_start", "filename": "/home/ada/train.py", "line": 30},
    ],
    "record_id": 7,
    "pg_id": 1,
    "process_group": ("1", "tp"),
    "collective_seq_id": 3,
    "p2p_seq_id": 5,
    "profiling_name": "nccl:send 1->2",
    "time_created_ns": 10**18,
    "input_sizes": [[1]],
    "input_dtypes": ["BFloat16"],
    "output_sizes": [[1]],
    "output_dtypes": ["BFloat16"],
    "state": "completed",
    "is_p2p": True,
}
NCCL = {
    "version": "2.4",
    "pg_config": {"1": {"name": "1", "desc": "tp", "ranks": "[1, 2]"}},
    "entries": [
        NCCL_ENTRY,
        NCCL_ENTRY | {"profiling_name": "nccl:_all_gather_base", "is_p2p": False},
    ],
}


def test_gloos_log_is_read_with_what_is_done_and_what_is_not() -> None:
    log = parse_dump(load_dump(json.dumps(GLOO).encode()), "torch", offset=-1_795_212_000.0)
    assert log is not None
    assert [(o.group, o.kind, o.number, o.shape, o.done) for o in log.operations] == [
        ("0", "all_reduce", 1, "float32[4, 8]", True),
        ("0", "barrier", 2, "", False),
    ]
    assert log.operations[0].at == pytest.approx(973.078253)
    assert log.sequence == {"0": 2}
    assert log.groups == {}


def test_whom_a_send_is_for_is_told_by_its_name_in_ranks_of_the_group() -> None:
    named = ("nccl:send 0->1", "nccl:recv 0<-1", "nccl:recv 0<-7", "nccl:coalesced")
    dump = {
        "pg_config": {"1": {"name": "1", "desc": "pp", "ranks": "[2, 5]"}},
        "entries": [NCCL_ENTRY | {"profiling_name": name} for name in named],
    }
    log = parse_dump(dump, "flight recorder")
    assert log is not None
    assert [(one.kind, one.peer) for one in log.operations] == [
        ("send", 5),
        ("recv", 5),
        ("recv", None),
        ("batch_isend_irecv", None),
    ]


def test_several_sends_at_once_are_not_compared_with_collectives() -> None:
    """NCCL's coalesced sends have numbers of their own: 5 is not the fifth collective."""
    batch = NCCL_ENTRY | {"profiling_name": "nccl:coalesced", "state": "completed"}
    reduces = NCCL_ENTRY | {"profiling_name": "nccl:all_reduce", "is_p2p": False}
    logs = [
        parse_dump({"entries": entries}, "flight recorder")
        for entries in ([batch, reduces], [reduces | {"collective_seq_id": 5}, reduces])
    ]
    ranks = [RankFacts(rank, collectives=(log,)) for rank, log in enumerate(logs) if log]
    assert len(ranks) == 2
    for group in list_logged_groups(ranks, "flight recorder"):
        first, second = (stream.operations for stream in group.streams)
        assert [one.kind for one in first] == ["all_reduce"]
        assert [one.kind for one in second] == ["all_reduce", "all_reduce"]


def test_nccls_pickle_is_read_with_sites_and_members() -> None:
    log = parse_dump(load_dump(pickle.dumps(NCCL, protocol=2)), "flight recorder")
    assert log is not None
    first = log.operations[0]
    assert (first.kind, first.number, first.shape) == ("send", 5, "bfloat16[1]")
    assert (first.site, first.between) == ("train.py:30 on_fit_start", "ddp.py:308 barrier")
    assert log.operations[1].kind == "_all_gather_base"
    assert log.groups == {"1": (1, 2)}


# The example of torch's own tutorial on the flight recorder (pytorch/tutorials,
# unstable_source/flight_recorder_tutorial.rst), version 2.5; what it leaves out is left out.
PUBLISHED: dict[str, Any] = {
    "version": "2.5",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {
        "0": {
            "last_enqueued_collective": 2,
            "last_started_collective": -1,
            "last_completed_collective": 2,
        }
    },
    "entries": [
        {
            "frames": [
                {
                    "name": "test_short_pickle",
                    "filename": "pytorch/test/distributed/test_c10d_nccl.py",
                    "line": 3647,
                },
                {
                    "name": "spawn_main",
                    "filename": ".conda/envs/pytorch-3.10/lib/python3.10/multiprocessing/spawn.py",
                    "line": 116,
                },
                {"name": "<module>", "filename": "<string>", "line": 1},
            ],
            "record_id": 0,
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": 1,
            "p2p_seq_id": 0,
            "op_id": 1,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1724779239936775119,
            "input_sizes": [[3, 4]],
            "input_dtypes": ["Float"],
            "output_sizes": [[3, 4]],
            "output_dtypes": ["Float"],
            "state": "completed",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": 1724779239975811724,
            "retired": True,
            "timeout_ms": 600000,
            "is_p2p": False,
        }
    ],
}


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(PUBLISHED).encode(),
        *(pickle.dumps(PUBLISHED, protocol=n) for n in range(pickle.HIGHEST_PROTOCOL + 1)),
    ],
)
def test_the_dump_that_torch_has_published_is_read(data: bytes) -> None:
    log = parse_dump(load_dump(data), "flight recorder")
    assert log is not None
    (one,) = log.operations
    assert (one.group, one.kind, one.number, one.shape, one.done) == (
        *("0", "all_reduce", 1, "float32[3, 4]", True),
    )
    assert one.site == "test_c10d_nccl.py:3647 test_short_pickle"
    assert (log.groups, log.sequence) == ({"0": (0, 1)}, {"0": 2})


def numbered(*operations: tuple[str, int, str]) -> dict[str, Any]:
    """A dump of operations of groups, each with its number, none of them a send for torch."""
    made = [
        PUBLISHED["entries"][0]
        | {"process_group": (group, ""), "collective_seq_id": number, "profiling_name": name}
        for group, number, name in operations
    ]
    return {"entries": made}


@pytest.mark.parametrize(
    ("dump", "is_so"),
    [
        (numbered(("a", 1, "x:all_reduce"), ("b", 2, "x:all_reduce"), ("a", 3, "x:barrier")), True),
        (numbered(("a", 1, "x:all_reduce"), ("a", 2, "x:send")), True),
        (numbered(("0", 1, "nccl:all_reduce"), ("1", 1, "nccl:all_reduce")), False),
        (numbered(("0", 7, "nccl:all_reduce"), ("1", 3, "nccl:all_reduce")), False),
        (numbered(("0", 1, "nccl:all_reduce"), ("0", 2, "nccl:all_reduce")), False),
        ({"entries": [NCCL_ENTRY]}, False),
        ({"entries": [3]}, False),
        ({}, False),
    ],
)
def test_one_counter_for_all_groups_is_torchcomms(dump: Any, is_so: bool) -> None:
    assert counts_all_together(dump) == is_so


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_something_is_refused(protocol: int, tmp_path: Any) -> None:
    os.chdir(tmp_path)
    with pytest.raises(ValueError, match="no dump"):
        load_dump(pickle.dumps({"entries": [Evil()]}, protocol=protocol))
    assert os.listdir() == []


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_garbage_is_no_dump(data: bytes) -> None:
    try:
        found = load_dump(data)
    except ValueError:
        return
    parse_dump(found, "torch")


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*NCCL_ENTRY, "entries", "pg_config", "ranks"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON)
def test_whatever_the_fields_hold_nothing_is_raised(found: Any) -> None:
    parse_dump(found, "torch")
    parse_dump({"entries": [found, NCCL_ENTRY], "pg_config": found, "pg_status": found}, "torch")
    for name in NCCL_ENTRY:
        log = parse_dump({"entries": [NCCL_ENTRY | {name: found}]}, "torch")
        assert log is not None


def nested(depth: int, pair: type) -> Any:
    """Return a few bytes' worth of pickle that is 2 ** depth things when it is written out."""
    found: Any = pair(["x", "x"])
    for _ in range(depth):
        found = pair([found, found])
    return found


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("pair", [list, tuple])
def test_a_dump_that_grows_when_it_is_written_out_costs_nothing(protocol: int, pair: type) -> None:
    growing = nested(40, pair)
    fields = [*GLOO["entries"][0], "frames"]  # type: ignore[index]  # a list of dicts
    entries = [{**GLOO["entries"][0], name: growing} for name in fields]  # type: ignore[index]
    dump = {
        "entries": [growing, *entries],
        "pg_config": {"0": growing, "1": {"ranks": growing}, "2": {"ranks": [growing]}},
        "pg_status": {"0": growing, "1": {"last_enqueued_collective": growing}},
    }
    data = pickle.dumps(dump, protocol)
    log = parse_dump(load_dump(data), "flight recorder")
    assert log is not None
    assert log.groups == {}
    assert len(log.operations) <= len(fields)
    assert all(len(str(one)) < 10_000 for one in log.operations)
    assert (
        parse_dump(load_dump(pickle.dumps({"entries": growing}, protocol)), "flight recorder")
        is not None
    )


def test_a_key_that_takes_ages_to_hash_is_refused() -> None:
    # As pickle.dumps would write {nested(40, tuple): 1}, which nobody can make here.
    memo = b"".join(
        b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(40)
    )
    start = b"\x80\x02X\x01\x00\x00\x00xq\x00"
    for setting in (b"}" + start[2:] + memo + b"K\x01s.", b"}(" + start[2:] + memo + b"K\x01u."):
        with pytest.raises(ValueError, match="dump"):
            load_dump(b"\x80\x02" + setting)
    with pytest.raises(ValueError, match="dump"):
        load_dump(start + memo + b"\x91.")  # FROZENSET


def test_a_pickle_of_more_steps_than_a_dump_has_is_refused() -> None:
    with pytest.raises(ValueError, match="steps"):
        load_dump(b"\x80\x02" + b"N0" * 3_000_000 + b".")


def test_a_place_in_the_memo_costs_nothing_either() -> None:
    assert (
        load_dump(b"\x80\x02]r\xff\xff\xff\x7f.") == []
    )  # the unpickler in C allocates all before it
