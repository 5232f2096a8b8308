"""Steps: what is told of them, and what is none."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hangbisect.base.checkpoints import STARTUP_BY_NAME
from hangbisect.base.events import Event, encode
from hangbisect.rank.collective_records import StepPace
from hangbisect.rank.watched.known_calls import KnownCall
from hangbisect.rank.watched.steps import MOST_LINES, MOST_MESSAGES, StepCounter, Steps

MODEL = KnownCall("lib.load", "lib:load", "model", "Model loaded", "model", 60, "model")
HUB = KnownCall("hub.get", "hub:get", "download", "File there", "hub", 30)
FIRST = KnownCall("torch.go", "torch:go", "first_go", "First go done", "fit", None, once=True)
BARRIER = KnownCall(
    "dist.barrier", "torch.distributed.distributed_c10d:barrier", "b", "B", "fit", 1
)
GATHER = KnownCall("dist.gather", "torch.distributed.distributed_c10d:gather", "g", "G", "fit", 1)


class Heard:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.said: list[str] = []
        self.steps = Steps(self.hear, self.said.append)

    def hear(self, event: Event) -> None:
        fields = encode(event)
        self.told.append((fields.pop("t"), fields))

    def do(self, row: KnownCall) -> bool:
        step = self.steps.begin(row)
        if step is not None:
            self.steps.end(step, None)
        return step is not None


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_a_step_is_told_and_said_before_and_after(heard: Heard) -> None:
    heard.do(MODEL)
    (begin, what), (end, result) = heard.told
    assert (begin, end) == ("begin", "end")
    assert what == {
        **{"step": "model", "k": 1, "depth": 0, "call": "lib.load", "title": "Model loaded"},
        **{"component": "model", "deadline": 60, "checkpoint": "model", "phase": None},
    }
    assert result == {"step": "model", "k": 1, "failed": False}
    done = f"CHECKPOINT {STARTUP_BY_NAME['model'].number}: Model created"
    assert heard.said == ["About to call lib.load...", done]


def test_what_corresponds_to_no_checkpoint_goes_by_its_name(heard: Heard) -> None:
    heard.do(HUB)
    assert heard.said[-1] == "CHECKPOINT download: File there"


def test_steps_nest_and_one_of_a_name_is_open_at_a_time(heard: Heard) -> None:
    model = heard.steps.begin(MODEL)
    assert model is not None
    assert heard.do(HUB)
    assert not heard.do(MODEL)
    heard.steps.end(model, None)
    assert [(kind, what.get("depth")) for kind, what in heard.told] == [
        ("begin", 0),
        ("begin", 1),
        ("end", None),
        ("end", None),
    ]


def test_a_loop_is_said_a_few_times_then_told_then_nothing(heard: Heard) -> None:
    done = [heard.do(HUB) for _ in range(MOST_MESSAGES + 10)]
    assert sum(done) == MOST_MESSAGES
    assert len(heard.said) == 2 * MOST_LINES
    assert [what["k"] for kind, what in heard.told if kind == "begin"] == [
        *range(1, MOST_MESSAGES + 1)
    ]


def test_only_the_first_call_may_be_a_step(heard: Heard) -> None:
    assert [heard.do(FIRST) for _ in range(3)] == [True, False, False]


def test_what_a_collective_consists_of_is_no_step(heard: Heard) -> None:
    step = heard.steps.begin(BARRIER)
    assert not heard.do(GATHER)
    assert step is not None
    heard.steps.end(step, None)
    assert heard.do(GATHER)


def test_what_fails_is_told_so_and_ends_what_was_begun_inside(heard: Heard) -> None:
    model = heard.steps.begin(MODEL)
    heard.steps.begin(HUB)
    assert model is not None
    heard.steps.end(model, ValueError("no"))
    failed = {"step": "model", "k": 1, "failed": True, "error": "ValueError: no"}
    assert heard.told[-1] == ("end", failed)
    assert heard.said[-1] == "lib.load raised ValueError"
    assert heard.steps.open == []


def test_calls_of_other_threads_are_no_steps(heard: Heard) -> None:
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(heard.do(MODEL)))
    thread.start()
    thread.join()
    assert results == [False]


class Optimizers:
    """As torch.optim.optimizer is: hooks for the steps of every optimizer."""

    def __init__(self) -> None:
        self.before: list[Any] = []
        self.after: list[Any] = []
        self.register_optimizer_step_pre_hook = self.before.append
        self.register_optimizer_step_post_hook = self.after.append

    def step(self, optimizer: object) -> None:
        for hook in self.before + self.after:
            hook(optimizer, (), {})


class Side:
    """What a counter of steps needs of its process, which nobody hears."""

    voice = steps = pulse = pace = None
    is_over = False

    def begin(self, row: KnownCall) -> Any:
        return lambda error: None


@pytest.mark.parametrize(
    ("times", "pace"),
    [
        ([10.0], None),
        ([10.0, 11.0], StepPace(at=11.0, longest=1.0)),
        ([10.0, 11.0, 14.0, 15.0], StepPace(at=15.0, longest=3.0)),
    ],
)
def test_the_pace_of_the_first_steps_is_kept(times: list[float], pace: StepPace | None) -> None:
    """The first one has none: what lies before it is the start."""
    side, optimizers, clock = Side(), Optimizers(), iter(times)
    StepCounter(side, 5, clock=clock.__next__).listen(optimizers)  # type: ignore[arg-type]
    for _ in times:
        optimizers.step(side)
    assert side.pace == pace
