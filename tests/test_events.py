"""Events as types: what is written is read again, and whatever is read raises nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hangbisect.base import events
from hangbisect.base.events import (
    ANSWERS,
    KINDS,
    Answer,
    Event,
    Unknown,
    decode,
    decode_answer,
    encode,
    encode_outer,
)
from hangbisect.base.rank_state import NodeRanks
from hangbisect.base.typed_messages import fields_of
from hangbisect.monitor.watcher_link import JobProgress
from hypothesis import given
from hypothesis import strategies as st

_number = st.integers(-(1 << 40) + 1, (1 << 40) - 1)
_rank = st.integers(-(1 << 24) + 1, (1 << 24) - 1)
_text = st.text(max_size=5)
_name = st.text("abcdefgh", max_size=5)
_VALUES: dict[str, st.SearchStrategy[Any]] = {  # by the words of an annotation
    "Rank": _rank,
    "int": _number,
    "float": st.floats(-1e12, 1e12),
    "str": _text,
    "bool": st.booleans(),
    "tuple[int, ...]": st.lists(_number, max_size=3).map(tuple),
    "tuple[Rank, ...]": st.lists(_rank, max_size=3).map(tuple),
    "tuple[str, ...]": st.lists(_text, max_size=3).map(tuple),
    "Mapping[str, str]": st.dictionaries(_name, _text, max_size=3),
    "Mapping[str, Rank]": st.dictionaries(_name, _rank, max_size=3),
    "Mapping[Rank, str]": st.dictionaries(st.integers(0, 99), _text, max_size=3),
}
_odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_name, inner, max_size=3),
    max_leaves=5,
)
_EVERY_FIELD = sorted({name for kind in KINDS.values() for name in fields_of(kind)})
# Of known kinds and with known names, so that it gets far.
_garbage = st.builds(
    lambda kind, fields: {"t": kind, **fields},
    st.sampled_from(sorted(KINDS)) | _odd,
    st.dictionaries(st.sampled_from(_EVERY_FIELD), _odd | _rank, max_size=8),
)


def _made(kind: type[Event]) -> st.SearchStrategy[Event]:
    values = {}
    for name, hint in {**Event.__annotations__, **kind.__annotations__}.items():
        value = _VALUES[hint.removesuffix(" | None")]
        values[name] = value | st.none() if hint.endswith(" | None") else value
    return st.builds(kind, **values)


@given(st.sampled_from(sorted(KINDS)).flatmap(lambda kind: _made(KINDS[kind])))
def test_what_is_written_is_read_again(event: Event) -> None:
    assert decode(encode(event)) == event
    assert decode(json.loads(json.dumps(encode(event)))) == event


@given(_garbage | _odd)
def test_whatever_is_read_is_an_event_and_is_written_as_it_was(said: Any) -> None:
    event = decode(said)
    assert decode(encode(event)) == event
    if isinstance(event, Unknown) and isinstance(said, dict):
        told = {n: v for n, v in said.items() if n not in fields_of(Event)}
        assert {n: v for n, v in encode(event).items() if n in told} == told


@given(st.lists(_garbage, max_size=12), st.booleans(), st.booleans())
def test_whatever_is_told_the_state_of_ranks_takes_it(
    said: list[dict[str, Any]], own: bool, remembers: bool
) -> None:
    ranks, progress = NodeRanks((), own, remembers), JobProgress()
    for message in said:
        ranks.apply(decode(message))
        progress.take(decode(message))
    assert all(state.rank == rank for rank, state in ranks.by_rank.items())


def test_what_is_missing_is_the_default_and_without_one_it_is_unknown() -> None:
    assert decode({"t": "import", "module": "torch", "seconds": 1}) == events.Import(
        module="torch", seconds=1.0, version=None
    )
    assert decode({"t": "arrive", "n": 3}) == events.Arrive(n=3, held=True)
    wrong: list[dict[str, Any]] = [{"t": "enter"}, {"t": "enter", "n": True}, {"t": "x"}, {}]
    for said in (*wrong, {"t": "enter", "n": "3"}, {"t": ["enter"]}):
        assert decode({**said, "at": 2.0, "rank": 1}) == Unknown(said, at=2.0, rank=1)


def test_what_has_no_value_is_null_only_where_it_always_was() -> None:
    bye = {"t": "bye", "status": None, "error": "", "finished": False}
    assert encode(events.Bye(status=None)) == bye
    assert encode(events.Failed(traceback="x")) == {"t": "failed", "traceback": "x"}


def test_an_event_is_frozen_and_has_no_other_fields() -> None:
    event = events.Enter(n=3)
    with pytest.raises(AttributeError, match="frozen"):
        event.n = 4  # type: ignore[misc]  # that it raises is what is tested
    with pytest.raises(TypeError, match="Enter: m"):
        event.replace(m=4)
    with pytest.raises(TypeError, match="Enter: n"):
        events.Enter()  # type: ignore[call-arg]  # that it raises is what is tested


def test_outside_is_told_where_ranks_are_and_no_text_or_variable_of_the_job() -> None:
    told = {name for kind in KINDS.values() for name in kind.outer or ()}
    assert told == {
        *(
            "rank",
            "pid",
            "at",
            "n",
            "name",
            "step",
            "k",
            "title",
            "held",
            "outcome",
            "ends",
            "hosts",
        ),
        *("run_dir", "folder", "titles"),
        "text",  # of a verdict, for people
    }
    for kind in KINDS.values():
        assert {*(kind.outer or ())} <= fields_of(kind).keys()
    own = {"environment": {"TOKEN": "x"}, "launcher": None, "master": None, "error_file": None}
    hello = events.Hello(rank=1, pid=7, **own)  # type: ignore[arg-type]  # of several types
    assert encode_outer(hello) == {"t": "hello", "rank": 1, "pid": 7}
    assert encode_outer(events.Line(text="x")) is None


# ---- what a monitor answers ----------------------------------------------------------------------


def _made_answer(kind: type[Answer]) -> st.SearchStrategy[Answer]:
    values = {}
    for name, hint in kind.__annotations__.items():
        value = _VALUES[hint.removesuffix(" | None")]
        values[name] = value | st.none() if hint.endswith(" | None") else value
    return st.builds(kind, **values)


@given(st.sampled_from(sorted(ANSWERS)).flatmap(lambda kind: _made_answer(ANSWERS[kind])))
def test_an_answer_that_is_written_is_read_again(answer: Answer) -> None:
    assert decode_answer(json.loads(json.dumps(encode(answer)))) == answer


@given(
    _odd
    | st.builds(
        lambda kind, fields: {**fields, "t": kind},
        st.sampled_from(sorted(ANSWERS)),
        st.dictionaries(st.sampled_from(["run_dir", "text", "done", "stacks_file"]), _odd),
    )
)
def test_what_is_no_answer_is_none_and_raises_nothing(said: Any) -> None:
    found = decode_answer(said)
    assert found is None or ANSWERS[said["t"]] is type(found)


def test_no_answer_is_an_event() -> None:
    assert not ANSWERS.keys() & KINDS.keys()
