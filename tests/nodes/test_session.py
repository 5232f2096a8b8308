"""A search from what was asked for to the answer; what is started is answered by the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hangbisect.base.errors import UsageError
from hangbisect.nodes.engines import Engine
from hangbisect.nodes.node_task import TaskOrders
from hangbisect.nodes.round_launch import StartedSet, Stopped
from hangbisect.nodes.session import (
    NODES_FILE,
    NodesRequest,
    NodesSession,
    check_command,
    read_nodes_answer,
    resume_request,
)
from hangbisect.report.node_search_text import nodes_lines
from hangbisect.search.node_search import NodesAnswer
from hangbisect.search.node_starts import SetResult

NOBODY = Engine("hosts", lambda orders: [])
Result = Callable[[tuple[str, ...]], SetResult]


class Launches:
    """Answers rounds, and counts them; after `most` it is stopped."""

    def __init__(self, result: Result, most: int = 1000) -> None:
        self.result, self.most, self.sets = result, most, list[list[tuple[str, ...]]]()

    def __call__(
        self,
        engine: Engine,
        sets: Sequence[tuple[str, ...]],
        orders: TaskOrders,
        stopping: threading.Event,
    ) -> list[StartedSet]:
        if len(self.sets) >= self.most:
            raise Stopped
        self.sets.append([*sets])
        found = []
        for one in sets:
            started = StartedSet(one)
            started.settle(result := self.result(one), "" if result == "pass" else f"{one[0]}: no")
            found.append(started)
        return found


def searched(request: NodesRequest, folder: Path, launches: Launches) -> NodesAnswer:
    return NodesSession(request, folder, NOBODY, threading.Event(), launches).run()


def fails_with(*bad: str) -> Result:
    return lambda nodes: "fail" if set(bad) & set(nodes) else "pass"


def cut_between(one: str, other: str) -> Result:
    return lambda nodes: "fail" if {one, other} <= set(nodes) else "pass"


def asked(count: int = 8, **more: Any) -> NodesRequest:
    return NodesRequest(tuple(f"n{number}" for number in range(1, count + 1)), "hosts", **more)


def test_the_answer_names_the_node_and_how_to_leave_it_out(tmp_path: Path) -> None:
    answer = searched(asked(), tmp_path, Launches(fails_with("n3")))
    assert answer.outcome == "found"
    lines = nodes_lines(answer, folder="run")
    assert lines[0].startswith("BAD NODE  ")
    assert lines[0].endswith(": n3")
    assert "node      n3: fails alone" in lines
    assert "exclude   --exclude=n3" in lines
    assert "          kubectl cordon n3" in lines


def test_of_a_link_one_end_is_left_out(tmp_path: Path) -> None:
    answer = searched(asked(), tmp_path, Launches(cut_between("n2", "n7")))
    assert answer.exclude == ("n2",)
    text = "\n".join(nodes_lines(answer, folder="run"))
    assert "link      n2 to n7: both pass with others and fail together" in text
    assert "either of them" in text


def test_what_is_written_is_as_its_schema_says(tmp_path: Path, package: Path) -> None:
    schema = json.loads((package / "data" / "nodes.schema.json").read_text())
    cases: tuple[Result, ...] = (
        fails_with("n3"),
        fails_with("n1", "n2"),
        cut_between("n2", "n7"),
        fails_with(),
        lambda nodes: "fail" if len(nodes) > 5 else "pass",
        lambda nodes: "unknown",
    )
    for number, result in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        answer = searched(asked(), folder, Launches(result))
        jsonschema.validate(json.loads((folder / NODES_FILE).read_text()), schema)
        assert read_nodes_answer(str(folder)) == answer
        assert (folder / "report.md").read_text().startswith("```\n")


def test_on_nodes_of_which_none_answers_nothing_is_said_of_any(tmp_path: Path) -> None:
    answer = searched(asked(), tmp_path, Launches(lambda nodes: "unknown"))
    assert answer.outcome == "not_started"
    assert answer.bad == ()
    assert nodes_lines(answer, folder="run")[0].startswith("NOT STARTED  ")


def test_one_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    result = cut_between("n2", "n7")
    whole = tmp_path / "whole"
    whole.mkdir()
    through = Launches(result)
    at_once = searched(asked(), whole, through)
    stopped = searched(asked(), tmp_path, Launches(result, most=4))
    assert stopped.outcome == "interrupted"
    assert stopped.next == f"hangbisect nodes --resume {tmp_path}"
    rest = Launches(result)
    request = resume_request(read_nodes_answer(str(tmp_path)), str(tmp_path), ())
    again = searched(request, tmp_path, rest)
    assert rest.sets == through.sets[4:]
    assert (again.bad, again.rounds) == (at_once.bad, at_once.rounds)


def test_limits_end_it_with_what_is_known_by_then(tmp_path: Path) -> None:
    launches = Launches(fails_with("n3"))
    answer = searched(asked(max_rounds=2), tmp_path, launches)
    assert len(launches.sets) == 2
    assert (answer.outcome, answer.why) == ("not_resolved", "--max-rounds 2 are over")


def test_a_search_with_another_command_is_not_gone_on_with(tmp_path: Path) -> None:
    searched(asked(command=("true",)), tmp_path, Launches(fails_with(), most=1))
    known = read_nodes_answer(str(tmp_path))
    with pytest.raises(UsageError, match="a search with another command: true"):
        resume_request(known, "run", ("false",))


def test_a_secret_of_the_command_is_not_written_down(tmp_path: Path) -> None:
    command = ("env", "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "true")
    searched(asked(command=command), tmp_path, Launches(fails_with(), most=1))
    assert "0123456789abcdef" not in (tmp_path / NODES_FILE).read_text()
    with pytest.raises(UsageError, match="a secret in it"):
        resume_request(read_nodes_answer(str(tmp_path)), "run", ())


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 1, "outcome": "found"}', "[" * 9999])
def test_what_no_search_has_written_is_said_in_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / NODES_FILE).write_text(text)
    with pytest.raises(UsageError, match="is not what a search for nodes writes"):
        read_nodes_answer(str(tmp_path))


@pytest.mark.parametrize(
    "word", ["--nnodes=4", "--node_rank=0", "--master-addr=n1", "--rdzv-endpoint=n1:29400"]
)
def test_torchrun_is_not_told_by_the_command_which_nodes_there_are(word: str) -> None:
    with pytest.raises(UsageError, match="each start is on other nodes"):
        check_command(("torchrun", word, "train.py"))
    check_command(("torchrun", "--nproc-per-node=8", "train.py"))
