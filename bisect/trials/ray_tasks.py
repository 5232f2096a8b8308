"""Tasks on the nodes of a Ray cluster: commands that Ray starts where it has room for them, or on
the node that is named; what they print, and what they are told, a line each.

It is a process of its own, in which Ray is imported: whoever starts it reads its lines, and ends
the tasks by ending its input. Each task is a process below an actor, which Ray ends with it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from ..base.files import PACKAGE
from ..base.json_codec import from_json, to_json
from ..base.lazy_dataclass import dataclass

END_LIMIT = 45.0  # seconds for tasks that are told to end
_TICK = 0.2  # seconds between two looks at what is said to us
_LINES_AND_WORDS = 4  # calls that an actor answers at a time


@dataclass(frozen=True)
class RayTask:
    """A command to be run somewhere."""

    key: str
    words: tuple[str, ...]
    cpus: int = 0  # cores that Ray is to set aside for it
    gpus: bool = False  # and as many GPUs, where the cluster has any
    node: str = ""  # its address; "": where there is room
    output: str = ""  # file for what it prints, which all nodes see; "": its lines are printed here


@dataclass(frozen=True)
class RayOrders:
    """What is to be done. The tasks are the first line of our input, a JSON list: a kernel takes
    128 KiB of an argument at the most (MAX_ARG_STRLEN in execve(2)).
    """

    lists_nodes: bool = False  # and nothing else
    address: str = "auto"
    folder: str = ""  # where they are started
    jobs: int | None = None  # so many at a time


@dataclass(frozen=True)
class RayWord:
    """A line that we print ourselves."""

    ray: Literal["ready", "node", "runs", "ended", "refused"]
    key: str = ""  # of the task
    node: str = ""  # an address
    why: str = ""


def run_ray_tasks(orders: RayOrders) -> int:
    """Run the tasks until all have ended, or our input has; return 0, 1 where there is no Ray."""
    try:
        import ray

        ray.init(address=orders.address, log_to_driver=False, logging_level="ERROR")
    except ImportError:
        _write_word(RayWord("refused", why=f"there is no Ray in {sys.executable}"))
        return 1
    except Exception as error:
        _write_word(
            RayWord("refused", why=f"no Ray cluster answers: {type(error).__name__}: {error}")
        )
        return 1
    try:
        _write_word(RayWord("ready"))
        if orders.lists_nodes:
            for node in _list_nodes(ray):
                _write_word(RayWord("node", node=node["NodeManagerAddress"]))
            return 0
        # What runs there is this file, of which Ray's workers need not know.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        _RayTasks(ray, orders, _Input()).run()
    finally:
        ray.shutdown()
    return 0


def make_ray_words(orders: RayOrders) -> tuple[str, ...]:
    """Return what starts this."""
    return (sys.executable, PACKAGE, "ray_tasks", json.dumps(to_json(orders)))


def make_tasks_line(tasks: Sequence[RayTask]) -> str:
    """Return the first line of what it is told."""
    return json.dumps(to_json(tuple(tasks)))


def _list_nodes(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


class _Actor:
    """Runs one task, on its node."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        output: str,
        all_gpus: bool,
    ) -> None:
        # Ray chooses GPUs for who asked for any, and hides all from who did not.
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        if given is not None and not (all_gpus and not given):
            environment = {**environment, "CUDA_VISIBLE_DEVICES": given}
        with open(output or os.devnull, "wb") as file:
            self.process = subprocess.Popen(
                list(words),
                cwd=folder or None,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=file if output else subprocess.PIPE,
                stderr=file if output else None,
            )

    def find_address(self) -> str:
        """Return the address of its node."""
        import ray

        address: str = ray.util.get_node_ip_address()
        return address

    def next_line(self) -> bytes:
        """Return the next line that it prints, b"" once it has ended."""
        if self.process.stdout is not None and (line := self.process.stdout.readline()):
            return line
        self.process.wait()
        return b""

    def tell(self, line: str) -> None:
        """Send it a line."""
        if self.process.stdin is not None:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()

    def end(self) -> None:
        """End its input, and itself."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.terminate()


class _Started(Protocol):
    """An actor, as Ray has it."""

    find_address: Any
    next_line: Any
    tell: Any
    end: Any


@dataclass
class _RayTasks:
    ray: Any
    orders: RayOrders
    heard: _Input
    waiting: list[RayTask] = field(default_factory=list)
    # By the reference to what the actor is asked.
    under_way: dict[Any, tuple[RayTask, _Started]] = field(default_factory=dict)
    told_to_run: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Start the tasks as there is room, until all have ended, or our input has."""
        self.waiting = self.heard.wait_for_tasks()
        has_gpus = bool(self.ray.cluster_resources().get("GPU"))
        ids = {node["NodeManagerAddress"]: node["NodeID"] for node in _list_nodes(self.ray)}
        heard, until = self.heard, None
        while self.waiting or self.under_way:
            while self.waiting and until is None and not self._is_full():
                self._start(self.waiting.pop(0), has_gpus, ids)
            if self.under_way:
                done, _ = self.ray.wait(list(self.under_way), timeout=_TICK)
                for reference in done:
                    self._take(reference)
            for line in heard.read_lines():
                for _, actor in self.under_way.values():
                    actor.tell.remote(line)
            if heard.is_over and until is None:
                self.waiting, until = [], time.monotonic() + END_LIMIT
                for _, actor in self.under_way.values():
                    actor.end.remote()
            if until is not None and time.monotonic() > until:
                return  # Ray ends the actors of a driver that is gone

    def _is_full(self) -> bool:
        return self.orders.jobs is not None and len(self.under_way) >= self.orders.jobs

    def _start(self, task: RayTask, has_gpus: bool, ids: Mapping[str, str]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {"num_cpus": task.cpus, "max_concurrency": _LINES_AND_WORDS}
        if task.gpus and has_gpus:
            options["num_gpus"] = task.cpus
        if task.node:
            if task.node not in ids:
                _write_word(RayWord("ended", task.key, task.node, "Ray has no such node"))
                return
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                ids[task.node], soft=False
            )
        made = self.ray.remote(_Actor).options(**options)
        # Variables of ours, as sbatch hands them on: but not those by which Ray knows its drivers.
        ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        folder = self.orders.folder
        actor = made.remote(task.words, ours, folder, task.output, bool(task.node))
        self.under_way[actor.find_address.remote()] = (task, actor)

    def _take(self, reference: Any) -> None:
        """Take in where an actor is, or its next line."""
        task, actor = self.under_way.pop(reference)
        try:
            said = self.ray.get(reference)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:500]
            _write_word(RayWord("ended", task.key, task.node, why))
            return
        if task.key not in self.told_to_run:
            self.told_to_run.add(task.key)
            _write_word(RayWord("runs", task.key, said))
        elif said:
            os.write(1, said)
        else:
            _write_word(RayWord("ended", task.key, task.node))
            self.ray.kill(actor)
            return
        self.under_way[actor.next_line.remote()] = (task, actor)


class _Input:
    """What we are told."""

    def __init__(self) -> None:
        self.is_over, self._text = False, b""

    def wait_for_tasks(self) -> list[RayTask]:
        """Return the tasks that the first line has: whoever starts us writes it, or is gone."""
        while b"\n" not in self._text and (block := os.read(0, 1 << 16)):
            self._text += block
        first, _, self._text = self._text.partition(b"\n")
        return list(from_json(tuple[RayTask, ...], json.loads(first)))

    def read_lines(self) -> Iterator[str]:
        """Yield the lines that are there."""
        while not self.is_over and select.select([0], [], [], 0)[0]:
            block = os.read(0, 4096)
            self.is_over = not block
            *lines, self._text = (self._text + block).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)


def _write_word(word: RayWord) -> None:
    os.write(1, (json.dumps(to_json(word)) + "\n").encode(errors="replace"))
