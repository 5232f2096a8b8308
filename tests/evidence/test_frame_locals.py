"""Which locals are kept, how they are masked, and what they must not change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.library_functions import FUNCTIONS, parse_text
from hangbisect.base.process_facts import FileLock, Frame, Look, Thread
from hangbisect.base.secret_rules.names import Says, says
from hangbisect.evidence import movement, stacks
from hangbisect.evidence.stacks import find_numbers, format_value, keep_locals
from hangbisect.evidence.successive_looks import complete_look
from hypothesis import given
from hypothesis import strategies as st

SITE = "/venv/lib/python3.11/site-packages/"
BUILD = Frame("_jit_compile", SITE + "torch/utils/cpp_extension.py", 2400)


def test_only_what_a_row_names_is_kept_in_the_order_of_the_row() -> None:
    found = [("sources", '["a.cpp"]'), ("build_directory", '"/b"'), ("name", '"x"')]
    assert keep_locals(BUILD, found) == (("name", '"x"'), ("build_directory", '"/b"'))


@pytest.mark.parametrize(
    "frame",
    [
        Frame("_jit_compile", "/home/me/cpp_extension.py", 3),
        Frame("something", BUILD.file, 3),
        Frame("_jit_compile", BUILD.file, 3, native=True),
    ],
)
def test_of_other_frames_nothing_is_kept(frame: Frame) -> None:
    assert keep_locals(frame, [("name", '"x"')]) == ()


@pytest.mark.parametrize(
    ("file", "function", "local"),
    [
        ("/usr/lib/python3.11/subprocess.py", "Popen.__init__", "args"),
        ("/usr/lib/python3.11/socket.py", "create_connection", "address"),
        ("<frozen importlib._bootstrap>", "_find_and_load", "name"),
        (SITE + "huggingface_hub/file_download.py", "hf_hub_download", "repo_id"),
        (SITE + "filelock/_api.py", "BaseFileLock.acquire", "poll_interval"),
        (SITE + "torch/distributed/rendezvous.py", "_create_c10d_store", "world_size"),
        (SITE + "torch/distributed/distributed_c10d.py", "broadcast", "src"),
        (SITE + "wandb/sdk/wandb_init.py", "_WandbInit.init", "timeout"),
        (SITE + "httpx2/_client.py", "Client.request", "url"),
        (SITE + "lightning/fabric/utilities/distributed.py", "_init_dist_connection", "world_size"),
    ],
)
def test_well_known_frames_have_a_row(file: str, function: str, local: str) -> None:
    assert keep_locals(Frame(function, file, 1), [(local, "1")]) == ((local, "1"),)


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ({"args": "(<Tensor at 0x7fb4>)", "kwargs": "{}"}, (("group", "None"),)),
        ({"args": "(<Tensor at 0x7fb4>)", "kwargs": '{"group": None}'}, (("group", "None"),)),
        (
            {"args": "(<T at 0x1>)", "kwargs": '{"group": <torch._C.ProcessGroup at 0x7f}'},
            (("group", "given"),),
        ),
        ({"args": "(<T at 0x1>, <ProcessGroup at 0x7f>)"}, (("group", "given"),)),
        ({"args": '(["a", ...])', "kwargs": "{}"}, ()),
        ({"kwargs": "{}"}, ()),
    ],
)
def test_of_a_call_of_torch_distributed_only_whether_it_was_given_a_group_is_kept(
    found: dict[str, str], kept: tuple[tuple[str, str], ...]
) -> None:
    """Its arguments may be anything, an object with a secret too."""
    wrapper = Frame(
        "_exception_logger.<locals>.wrapper", SITE + "torch/distributed/c10d_logger.py", 83
    )
    assert keep_locals(wrapper, [*found.items(), ("token", '"x"')]) == kept


def test_no_row_names_what_holds_a_secret() -> None:
    named = {name for row in FUNCTIONS for name in row.shown_locals}
    # Keys of a store are no secrets, and the word in front of them says so.
    assert {name for name in named if says(name) is Says.SECRET} <= {"store_key", "key_prefix"}


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("url", '"https://me:pass@hub.example/x"', '"https://me:***@hub.example/x"'),
        ("url", '"https://h/x?token=abc&a=1"', '"https://h/x?token=***&a=1"'),
        (
            "args",
            '["wandb", "login", "--api-key", "abc"]',
            '["wandb", "login", "--api-key", "***"]',
        ),
        ("args", '"wandb login --api-key abc"', '"wandb login --api-key ***"'),
        ("args", '["sh", "-c", "a --token abc"]', '["sh", "-c", "a --token ***"]'),
        ("popenargs", '(["env", "HF_TOKEN=abc", "x"])', '(["env", "HF_TOKEN=***", "x"])'),
        ("self", "<SoftFileLock at 0x7f56fb9e4650>", "<SoftFileLock>"),
        ("timeout", "<datetime.timedelta at 0x7f56fb9e4650>", ""),
        ("timeout", "None", "None"),
        ("revision", "None", ""),
        ("url", "?", ""),
    ],
)
def test_values_are_masked_and_say_something(name: str, value: str, shown: str) -> None:
    assert format_value(name, value) == shown


def test_long_values_are_cut() -> None:
    assert len(format_value("url", '"' + "x" * 9999)) == stacks.MOST_CHARACTERS


def test_text_that_was_cut_short_is_no_path() -> None:
    assert parse_text('"/a/b"') == "/a/b"
    assert parse_text('"/a/b..."') == ""
    assert parse_text("<PosixPath at 0x1>") == ""


def test_locals_come_from_py_spys_json_and_stand_below_their_frame() -> None:
    secret = {"name": "extra_cflags", "repr": '"hidden"'}
    data = [
        {
            "os_thread_id": 5,
            "frames": [
                {
                    "name": "_jit_compile",
                    "filename": BUILD.file,
                    "line": 2400,
                    "locals": [{"name": "name", "repr": '"x"'}, secret, {"name": 3}, None],
                },
                {"name": "f", "filename": "/a.py", "line": 1, "locals": None},
            ],
        }
    ]
    (thread,) = stacks.parse_py_spy(json.dumps(data), 5)
    assert thread.frames[0].locals == (("name", '"x"'),)
    text = stacks.format_stacks(5, ["python"], (thread,))
    assert text.splitlines()[3:] == [
        "    _jit_compile (cpp_extension.py:2400)",
        '        name = "x"',
        "    f (a.py:1)",
    ]
    assert "hidden" not in text


# ---- what they must not change -------------------------------------------------------------------

NATIVE = Frame("clock_nanosleep", "libc.so.6", 0, native=True)
WAIT = Frame("wait", SITE + "torch/utils/file_baton.py", 48)
USER = Frame("<module>", "/train.py", 3)
KNOWN = Frame(BUILD.name, BUILD.file, BUILD.line, locals=(("name", '"x"'),))


def look(*frames: Frame, rung: Any = "py-spy", stale: tuple[FileLock, ...] = ()) -> Look:
    thread = Thread(7, None, False, False, frames)
    return Look(1.0, 7, 1, "python", (), 9.0, "S", rung, (thread,), stale_locks=stale)


def test_the_same_place_with_other_locals_is_no_movement() -> None:
    changed = Frame(KNOWN.name, KNOWN.file, KNOWN.line, locals=(("name", '"y"'),))
    assert movement.describe_movement([look(WAIT, KNOWN, USER), look(WAIT, changed, USER)]) == ""
    assert movement.collect_places([look(WAIT, KNOWN)]) == movement.collect_places(
        [look(WAIT, BUILD)]
    )
    assert KNOWN == BUILD
    assert hash(KNOWN) == hash(BUILD)


def test_another_rung_names_functions_without_their_class_and_that_is_no_movement() -> None:
    first = look(Frame("FileBaton.wait", WAIT.file, 48), USER)
    assert movement.describe_movement([first, look(WAIT, USER, rung="pystack")]) == ""


def test_a_look_that_pauses_takes_the_locals_over_from_the_one_before() -> None:
    stale = (FileLock("/b/lock", 1, None),)
    after = complete_look(look(WAIT, KNOWN, USER, stale=stale), look(NATIVE, WAIT, BUILD, USER))
    assert after.main is not None
    assert [frame.locals for frame in after.main.frames] == [(), (), KNOWN.locals, ()]
    assert after.stale_locks == stale
    assert '        name = "x"\n' in after.dump


def test_nothing_is_taken_over_from_another_place() -> None:
    other = Frame("<module>", "/train.py", 4)
    after = look(NATIVE, WAIT, BUILD, other)
    kept_over = complete_look(look(WAIT, KNOWN, USER), after)
    assert kept_over is after


def test_what_was_not_answered_in_time_is_as_it_was() -> None:
    frozen = replace(look(USER), command=("python", "x.py"), frozen="/sys/fs/cgroup/x")
    for rung in ("proc", "py-spy"):
        after = complete_look(frozen, look(USER, rung=rung))
        assert (after.command, after.frozen) == (frozen.command, frozen.frozen)
    thaws = replace(look(USER), command=frozen.command)
    assert complete_look(frozen, thaws).frozen == ""


def test_what_a_look_knows_itself_stays() -> None:
    newer = Frame(BUILD.name, BUILD.file, BUILD.line, locals=(("name", '"new"'),))
    after = complete_look(look(WAIT, KNOWN, USER), look(WAIT, newer, USER))
    assert after.main is not None
    assert after.main.frames[1].locals == newer.locals


def test_whole_numbers_are_found_in_the_jobs_own_functions_alone() -> None:
    found = [("epoch", "3"), ("seen", "-7"), ("ratio", "0.5"), ("main", "True"), ("who", '"4"')]
    own = Frame("train", "/home/me/train.py", 3)
    assert find_numbers(own, found) == (("epoch", 3), ("seen", -7))
    assert find_numbers(BUILD, found) == ()
    assert find_numbers(own, [("n", "9" * 400)]) == ()


def test_the_numbers_of_a_frame_stay_while_it_does() -> None:
    frame = Frame("train", "/home/me/train.py", 3, numbers=(("epoch", 3),))
    after = complete_look(look(WAIT, frame), look(WAIT, replace(frame, numbers=())))
    assert after.main is not None
    assert after.main.frames[1].numbers == (("epoch", 3),)


@given(st.text(), st.text(), st.lists(st.tuples(st.text(), st.text())))
def test_whatever_py_spy_says_of_locals_is_no_trouble(
    name: str, file: str, found: list[tuple[str, str]]
) -> None:
    keep_locals(Frame(name, file, 1), found)
    keep_locals(BUILD, [("name", value) for _, value in found])
    for one, value in found:
        parse_text(value)
        for shown in (one, "args", "self", "timeout"):
            assert len(format_value(shown, value)) <= stacks.MOST_CHARACTERS


def test_of_what_lightning_takes_for_its_launcher_the_class_is_kept() -> None:
    file = SITE + "lightning_fabric/utilities/distributed.py"
    told = [("cluster_environment", "<SLURMEnvironment at 0x7f08c6f66110>"), ("kwargs", "{}")]
    kept = keep_locals(Frame("_init_dist_connection", file, 1), told)
    assert kept == (("cluster_environment", "<SLURMEnvironment>"),)
