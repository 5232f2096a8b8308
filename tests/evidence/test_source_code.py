"""Which lines of a source only some ranks come by, and which stand below an `except`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.process_facts import Frame, Look, Thread
from hangbisect.base.rank_facts import Collective, CollectiveLog
from hangbisect.evidence.rank_conditions import add_conditions, find_condition
from hangbisect.evidence.source_code import (
    add_awaited_ends,
    add_code_around,
    find_calls,
    find_catcher,
    find_given_texts,
    find_handed_out,
    find_handler,
    find_loop,
    find_loop_counters,
    has_root_of_round,
)
from hypothesis import given, settings
from hypothesis import strategies as st

# The line in question ends in "# here".
ONLY_SOME = [
    ("if rank == 0:\n    barrier()  # here", "if rank == 0"),
    ("main = int(os.environ['RANK']) == 0\nif main:\n    barrier()  # here", "if main"),
    ("a = get_rank()\nb = a == 0\nif b: barrier()  # here", "if b"),
    ("if rank == 0:\n    x()\nelse:\n    barrier()  # here", "else of if rank == 0"),
    (
        "class C:\n  def f(self, trainer):\n    if trainer.is_global_zero:\n"
        "      with x:\n        y(\n          1,  # here\n        )",
        "if trainer.is_global_zero",
    ),
    (
        "def f():\n    if dist.get_rank() != 0:\n        return\n    barrier()  # here",
        "not left before by: if dist.get_rank() != 0",
    ),
    ("@rank_zero_only\ndef f():\n    barrier()  # here", "@rank_zero_only"),
    (
        "@accelerator.on_process(process_index=2)\ndef f():\n    barrier()  # here",
        "@accelerator.on_process(process_index=2)",
    ),
    (
        "@accelerator.on_main_process\ndef f():\n    barrier()  # here",
        "@accelerator.on_main_process",
    ),
    (
        "while not accelerator.is_main_process:\n    barrier()  # here",
        "if not accelerator.is_main_process",
    ),
    (
        "self.gpu_id = int(os.environ['LOCAL_RANK'])\nif epoch % 2 == 0 and self.gpu_id == 0:\n"
        "    barrier()  # here",
        "if epoch % 2 == 0 and self.gpu_id == 0",
    ),
    ("if not rank:\n    barrier()  # here", "if not rank"),
    ("if rank % 8 == 0:\n    barrier()  # here", "if rank % 8 == 0"),
    (
        "if os.environ.get('RANK', '0') == '0':\n    barrier()  # here",
        "if os.environ.get('RANK', '0') == '0'",
    ),
    (
        "me = rank_number(given)\nif me == 1 and step == 1:\n    barrier()  # here",
        "if me == 1 and step == 1",
    ),
    ("shard = [] if get_rank() == 2 else [1.0]\nif shard:\n    barrier()  # here", "if shard"),
    ("if dist.get_rank(group) == 0:\n    barrier()  # here", "if dist.get_rank(group) == 0"),
    ("r, w = dist.get_rank(), 8\nif r >= 4:\n    barrier()  # here", "if r >= 4"),
    ("me: int = dist.get_rank()\nif me: barrier()  # here", "if me"),
    ("if (me := dist.get_rank()) == 0: barrier()  # here", "if (me := dist.get_rank()) == 0"),
    (
        "def work(i, port):\n    if i == 0:\n        barrier()  # here\nmp.spawn(work, args=(9,))",
        "if i == 0",
    ),
    # A signal need not come to all.
    (
        "def leave(number, frame):\n    barrier()  # here\nsignal.signal(signal.SIGTERM, leave)",
        "signal.signal(signal.SIGTERM, leave)",
    ),
    (
        "class C:\n  def listen(self):\n    signal(SIGUSR1, self._leave)\n"
        "  def _leave(self, *rest):\n    with x:\n      barrier()  # here",
        "signal(SIGUSR1, self._leave)",
    ),
    (
        "async def leave():\n    barrier()  # here\nloop.add_signal_handler(SIGTERM, leave)",
        "loop.add_signal_handler(SIGTERM, leave)",
    ),
]
ALL = [
    # Whether there are ranks at all is the same on every rank.
    "ddp = int(os.environ.get('RANK', -1)) != -1\nif ddp:\n    barrier()  # here",
    "if 'RANK' in os.environ:\n    barrier()  # here",
    "if rank is not None and rank >= 0:\n    barrier()  # here",
    # What is made of something that knows the rank need not differ itself (nanoGPT).
    "ddp = int(os.environ.get('RANK', -1)) != -1\nraw = model.module if ddp else model\n"
    "checkpoint = {'model': raw, 'rank': rank}\niter_num = checkpoint['iter_num']\n"
    "while True:\n    if iter_num == 0 and eval_only:\n        break\n    backward()  # here",
    "loader = make_loader(rank)\nif loader.is_full():\n    barrier()  # here",
    "steps = len(Sampler(data, rank=rank))\nif steps > 3:\n    barrier()  # here",
    "barrier()  # here",
    "if world_size > 1:\n    barrier()  # here",
    "for r in range(world):\n    if r == rank:\n        print()\n    barrier()  # here",
    "if step % 10 == 0:\n    barrier()  # here",
    "if rank == 0:\n    print()\nbarrier()  # here",
    "def f(rank):\n    barrier()  # here",
    "if rank == 0:\n    print()\nelse:\n    print()\nbarrier()  # here",
    "def work(i):\n    for i in range(9):\n        if i == 5:\n            barrier()  # here\n"
    "mp.spawn(work)",
    "r = get_rank()\nfor r in range(9):\n    if r == 5:\n        barrier()  # here",
    # A handler of signals that is called besides, and what only has the name of one.
    "def leave(*a):\n    barrier()  # here\nsignal.signal(signal.SIGTERM, leave)\nleave()",
    "def leave():\n    barrier()  # here\nsignal.signal(signal.SIGTERM, other)",
    "def leave():\n    barrier()  # here\nobject.signal(leave)",
]


def line_of(source: str) -> int:
    return next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# here"))


@pytest.mark.parametrize(("source", "condition"), ONLY_SOME)
def test_the_condition_is_told(source: str, condition: str) -> None:
    assert find_condition(source, line_of(source)) == condition


@pytest.mark.parametrize("source", ALL)
def test_where_all_come_by_there_is_none(source: str) -> None:
    assert find_condition(source, line_of(source)) == ""


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(-5, 50))
def test_what_is_no_python_has_no_conditions(source: str, line: int) -> None:
    assert isinstance(find_condition(source, line), str)


def test_a_log_gets_the_conditions_of_its_calls(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("if rank == 0:\n    barrier()\nbarrier()\n")
    operations = [
        Collective("0", "barrier", n, f"train.py:{line} <module>", file=str(file))
        for n, line in enumerate((2, 3), 1)
    ]
    gone = Collective("0", "barrier", 3, "x.py:1 f", file=str(tmp_path / "x.py"))
    log = add_conditions(CollectiveLog("ring", (*operations, gone)))
    assert [o.condition for o in log.operations] == ["if rank == 0", "", ""]


# ---- handlers ---------------------------------------------------------------------------------

BELOW = [
    ("try:\n    x()\nexcept OSError as error:\n    sleep(1)  # here", "except OSError"),
    ("try: x()\nexcept (A, b.C): sleep(1)  # here", "except (A, b.C)"),
    ("try:\n    x()\nexcept:\n    if a:\n        sleep(1)  # here", "except"),
    ("try:\n    x()\nexcept* A:\n    sleep(1)  # here", "except A"),
    ("def f():\n  try:\n    x()\n  except A:\n    with b:\n      sleep(\n  1) # here", "except A"),
]
NOT_BELOW = [
    "try:\n    sleep(1)  # here\nexcept OSError:\n    pass",
    "try:\n    x()\nexcept OSError:\n    pass\nelse:\n    sleep(1)  # here",
    "try:\n    x()\nexcept OSError:\n    pass\nfinally:\n    sleep(1)  # here",
    "try:\n    x()\nexcept OSError:\n    pass\nsleep(1)  # here",
    "try:\n    x()\nexcept A:\n    def later():\n        sleep(1)  # here",
    "not python  # here",
]


@pytest.mark.parametrize(("source", "handler"), BELOW)
def test_an_exception_was_caught_before_such_a_line(source: str, handler: str) -> None:
    assert find_handler(source, line_of(source)) == handler


@pytest.mark.parametrize("source", NOT_BELOW)
def test_other_lines_are_come_by_without_one(source: str) -> None:
    assert find_handler(source, line_of(source)) == ""


@given(st.text(), st.integers())
@settings(deadline=None)
def test_garbage_has_no_handlers(source: str, line: int) -> None:
    assert isinstance(find_handler(source, line), str)


def test_a_look_gets_those_of_the_jobs_own_lines(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(BELOW[0][0])
    own, gone = Frame("f", str(file), 4), Frame("g", str(tmp_path / "gone.py"), 4)
    library = Frame("h", "/venv/lib/python3.11/site-packages/x.py", 4)
    main, other = (
        Thread(7, None, False, False, (own, library, gone)),
        Thread(8, "", False, False, ()),
    )
    look = Look(1.0, 7, 1, "python", (), 1.0, "S", "py-spy", threads=(main, other))
    told = add_code_around(look)
    assert [frame.handler for frame in told.threads[0].frames] == ["except OSError", "", ""]
    assert told.threads[1] is other
    nothing = Look(1.0, 7, 1, "python", (), 1.0, "S", "proc")
    assert add_code_around(nothing) is nothing


def test_a_frame_has_the_condition_by_which_only_some_ranks_come(tmp_path: Path) -> None:
    """What a log of collectives has of a call, `attach` has of where a rank stands."""
    file = tmp_path / "train.py"
    file.write_text("if rank == 2:\n    dist.all_gather(losses, loss)\ndist.barrier()\n")
    frames = tuple(Frame("train", str(file), line) for line in (2, 3))
    threads = (Thread(7, None, False, False, frames),)
    told = add_code_around(Look(1.0, 7, 1, "python", (), 1.0, "S", "py-spy", threads=threads))
    assert told.main is not None
    assert [frame.condition for frame in told.main.frames] == ["if rank == 2", ""]


@pytest.mark.parametrize(
    ("source", "line", "calls"),
    [
        ("x = one.stdout.readline()\n", 1, ("one.stdout.readline",)),
        ("words = os.read(\n    ends[0],\n    size(1),\n)\n", 1, ("os.read",)),
        ("words = os.read(\n    ends[0],\n    size(1),\n)\n", 3, ("size",)),
        ("for row in rows():\n    use(row)\n", 2, ("use",)),
        ("for row in rows():\n    use(row)\n", 1, ("rows",)),
        ("with a() as x, b.c(x):\n    pass\n", 1, ("a", "b.c")),
        ("table[0]().read()\n", 1, ("read",)),
        ("x = 1\n", 1, ()),
        ("def (", 1, ()),
    ],
)
def test_what_a_line_calls(source: str, line: int, calls: tuple[str, ...]) -> None:
    assert find_calls(source, line) == calls


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("store.get('address-of-the-evaluator')", ("address-of-the-evaluator",)),
        ("store.wait(['a', 'b'], timedelta(seconds=60))", ("a", "b")),
        ("store.wait(keys=('a',))", ("a",)),
        ("store.get(key)", ()),
        ("store.get(f'ready-{rank}')", ()),
        ("store.get('x' * 3)", ()),
        ("print(1, b'bytes')", ()),
        ("login('hf_' + token, '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')", ("...",)),
        (f"store.get('{'k' * 300}')", ()),
        ("def (", ()),
    ],
)
def test_the_texts_that_a_line_gives_to_what_it_calls(source: str, texts: tuple[str, ...]) -> None:
    found = find_given_texts(source, 1)
    if texts == ("...",):  # a secret: masked, however that is spelled
        assert "QwErTyUiOpAsDf" not in "".join(found)
    else:
        assert found == texts


ROUNDS = """\
def train(loader, epochs, start):
    done = 0
    for epoch in range(epochs):
        for step, (x, y) in enumerate(loader):
            loss = fit(x, y)
        while done < 3:
            done += 1
            total += loss
            meet(done)
        save(epoch)
    report(done)

def meet(epoch, rank, size):
    poll(epoch)

def gather(parts):
    return [send(part) for part in range(parts)]
"""


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (5, {"epoch", "step"}),  # x and y are no whole numbers: what a look has decides
        (9, {"epoch", "done"}),
        (10, {"epoch"}),
        (11, set()),
        (14, {"epoch"}),  # a parameter that is called so
        (17, set()),
        (99, set()),
    ],
)
def test_the_counters_of_the_loops_around_a_line(line: int, names: set[str]) -> None:
    assert {*find_loop_counters(ROUNDS, line)} - {"x", "y"} == names


def test_counters_of_what_is_no_python() -> None:
    assert find_loop_counters("for x in (", 1) == ()


def test_a_look_keeps_the_whole_numbers_that_count_rounds(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(ROUNDS)
    numbers = (("epoch", 2), ("step", 41), ("epochs", 9), ("start", 0))
    frame = Frame("train", str(file), 5, numbers=numbers)
    thread = Thread(1, "MainThread", False, False, (frame,))
    look = Look(1.0, 1, 0, "python", (), 1.0, "S", "py-spy", threads=(thread,))
    (main,) = add_code_around(look).threads
    assert main.frames[0].counters == (("epoch", 2), ("step", 41))


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        (5, (4, 5)),
        (9, (6, 9)),
        (10, (3, 10)),
        (4, (3, 10)),  # what is gone through is worked out outside of its loop
        (11, ()),
        (14, ()),
        (17, ()),  # a comprehension is none
        (99, ()),
    ],
)
def test_the_lines_of_the_innermost_loop_around_a_line(line: int, lines: tuple[int, ...]) -> None:
    assert find_loop(ROUNDS, line) == lines


def test_no_loop_is_in_what_is_no_python() -> None:
    assert find_loop("for x in (", 1) == ()


CATCHING = """
def serve(tasks):
    while True:
        task = tasks.get()  # here
        try:
            task()
        except {kind}:
            {then}
"""


@pytest.mark.parametrize(
    ("kind", "then", "found"),
    [
        ("Exception", "log()", "except Exception"),
        ("Exception", "raise", ""),
        ("Exception", "return None", ""),
        ("OSError", "log()", ""),
    ],
)
def test_a_loop_that_catches_what_its_rounds_raise_is_found(
    kind: str, then: str, found: str
) -> None:
    source = CATCHING.format(kind=kind, then=then)
    assert find_catcher(source, 4) == found
    assert find_catcher("def get(tasks):\n    return tasks.get()\n", 2) == ""


SWAPS = """
def swap(rank, world, data):
    after, before = (rank + 1) % world, (rank - 1) % world
    works = [dist.irecv(data, src=rank + 1), dist.isend(data, rank - 1)]
    made = [dist.P2POp(dist.irecv, data, before), dist.P2POp(dist.isend, data, after)]
    for work in works + dist.batch_isend_irecv(made):
        work.wait()
    return data
"""


def test_the_source_and_its_numbers_tell_for_whom_the_handles_are() -> None:
    numbers = (("after", 3), ("before", 1), ("rank", 2), ("world", 4))
    found = [("irecv", 3), ("isend", 1), ("irecv", 1), ("isend", 3)]
    assert sorted(find_handed_out(SWAPS, 7, numbers)) == sorted(found)
    assert find_handed_out(SWAPS, 8, numbers) == ()  # it waits for none
    assert find_handed_out(SWAPS, 7, numbers[1:]) == ()  # a number is not known
    assert find_handed_out("for x in (", 1, ()) == ()


def test_a_rank_that_is_looked_up_is_not_known() -> None:
    source = "def f(peers, data):\n    dist.irecv(data, peers[0]).wait()\n"
    assert find_handed_out(source, 2, ()) == ()
    assert find_handed_out(source.replace("peers[0]", "1 % 0"), 2, ()) == ()
    assert find_handed_out(source.replace("peers[0]", "0"), 2, ()) == (("irecv", 0),)


SENDS_ROUND = """
def hand_round(names, owners, ready):
    for name in names:
        owner = owners[name]
        broadcast(weights[name], src=owners[name])
        broadcast(weights[name], owner)
        broadcast(weights[name], src=ready)
    broadcast(name, src=owner)
"""


@pytest.mark.parametrize(("line", "is_so"), [(5, True), (6, True), (7, False), (8, False)])
def test_a_root_that_follows_from_what_a_loop_sets_is_another_one_in_each_round(
    line: int, is_so: bool
) -> None:
    assert has_root_of_round(SENDS_ROUND, line) == is_so


def test_who_sleeps_until_a_child_has_ended_is_told_from_who_sleeps_for_something_else(
    tmp_path: Path,
) -> None:
    file = tmp_path / "serve.py"
    file.write_text(
        "import multiprocessing, time\n"
        "def watch(workers):\n"
        "    while all(one.is_alive() for one in workers):\n"
        "        time.sleep(0.5)\n"
        "def write(ring):\n"
        "    while ring.is_full():\n"
        "        time.sleep(0.5)\n"
    )
    for function, line, expected in (("watch", 4, True), ("write", 7, False)):
        frames = (Frame("sleep", "", 0, native=True), Frame(function, str(file), line))
        main = Thread(7, "MainThread", False, False, frames)
        (found,) = add_awaited_ends(
            Look(1.0, 7, 1, "python", (), 1.0, "S", "py-spy", threads=(main,))
        ).threads
        assert [one.awaits_ends for one in found.frames] == [False, expected]
