"""The path of a lock file for which a loop in the source waits, however the loop is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.process_facts import Frame
from hangbisect.evidence.awaited_files import find_polled_path, format_polling_place

from .test_source_code import line_of


def find(place: Path, source: str, **texts: str) -> str | None:
    """Return the path for which the line that ends in "# here" waits, None for none."""
    path = place / "job.py"
    path.write_text(source, encoding="utf-8")
    frame = Frame("f", str(path), line_of(source), texts=tuple(texts.items()))
    found = find_polled_path((frame,))
    if found is not None:
        assert found[0] is frame
    return found[1] if found else None


# Loops that go on while the file is there: it is a lock. Who sleeps in one waits for its end.
WAITS = [
    "while os.path.exists(p):\n    sleep(1)  # here",
    "while os.path.exists(p) and tries < 9:\n    sleep(1)  # here",
    "while not (not os.path.lexists(p)):\n    sleep(1)  # here",
    "while p.exists():\n    sleep(1)  # here",
    "while Path(p).is_file():\n    sleep(1)  # here",
    "while os.path.exists(os.fspath(p)):\n    sleep(1)  # here",
    "while True:\n    if not os.path.isfile(p):\n        return\n    sleep(1)  # here",
    "while True:\n    if not os.path.isdir(p):\n        break\n    sleep(1)  # here",
    # Loops that try to make it, which fails while it is there.
    "while True:\n    try:\n        os.mkdir(p)\n        break\n    except OSError:\n"
    "        sleep(1)  # here",
    "while True:\n    try:\n        open(p, mode='x')\n        break\n    except OSError:\n"
    "        sleep(1)  # here",
    "while True:\n    try:\n        p.touch(exist_ok=False)\n        break\n    except OSError:\n"
    "        sleep(1)  # here",
    "for _ in range(9):\n    try:\n        os.symlink(p)\n        break\n    except OSError:\n"
    "        sleep(1)  # here",
    "def f():\n    while True:\n        try:\n            os.open(p, O_CREAT | O_EXCL)\n"
    "            return\n        except OSError:\n            sleep(1)  # here",
    "while True:\n    try:\n        p.mkdir(exist_ok=False)\n        break\n    except OSError:\n"
    "        sleep(1)  # here",
    # A helper that tries: what it calls its parameter is what the loop gives for it.
    "def take(a, name):\n    try:\n        os.mkdir(name)\n    except OSError:\n"
    "        return False\nwhile not take(1, p):\n    sleep(1)  # here",
    "def take(name):\n    try:\n        os.mkdir(name)\n    except OSError:\n"
    "        return False\nwhile not take(name=p):\n    sleep(1)  # here",
]


@pytest.mark.parametrize("source", WAITS)
def test_a_loop_that_ends_when_a_file_goes_waits_for_a_lock(tmp_path: Path, source: str) -> None:
    assert find(tmp_path, "p = '/c/a.lock'\n" + source) == "/c/a.lock"


# Nobody holds anything that these wait for, or it is not a file that they wait for.
OTHERS = [
    # Until it comes: a flag of another rank.
    "while not os.path.exists(p):\n    sleep(1)  # here",
    "while True:\n    if os.path.exists(p):\n        break\n    sleep(1)  # here",
    # It may be there already: no failure.
    "while True:\n    try:\n        os.mkdir(p)\n    finally:\n        sleep(1)  # here",
    "while True:\n    try:\n        os.makedirs(p, exist_ok=True)\n    except OSError:\n"
    "        sleep(1)  # here",
    "while True:\n    try:\n        open(p, 'w')\n    except OSError:\n        sleep(1)  # here",
    "while True:\n    try:\n        p.touch()\n    except OSError:\n        sleep(1)  # here",
    "while True:\n    try:\n        p.touch(exist_ok=True)\n    except OSError:\n"
    "        sleep(1)  # here",
    # No loop around the line, or one in another function.
    "os.path.exists(p)\nsleep(1)  # here",
    "while os.path.exists(p):\n    def f():\n        sleep(1)  # here",
    "not python os.path.exists(p)  # here",
]


@pytest.mark.parametrize("source", OTHERS)
def test_other_loops_wait_for_no_lock(tmp_path: Path, source: str) -> None:
    assert find(tmp_path, "p = '/c/a.lock'\n" + source) is None


LOOP = "while os.path.exists({}):\n    sleep(1)  # here"

PATHS = [
    ("os.path.join(folder, 'a', 'lock')", "/c/a/lock"),
    ("folder + '/lock'", "/c/lock"),
    ("f'{folder}/rank{NUMBER}.lock'", None),  # a number: no text is known of it
    ("f'{folder}/{NAME}.lock'", "/c/index.lock"),
    ("Path(folder) / 'lock'", "/c/lock"),
    ("Path(folder, 'lock')", "/c/lock"),
    ("Path(folder).joinpath('x', 'lock')", "/c/x/lock"),
    ("Path(folder).joinpath('lock')", "/c/lock"),
    ("str(abspath(folder))", "/c"),
    ("os.path.join(folder, unknown)", None),
    ("folder * 2", None),
    ("pick(folder)", None),
    ("paths[0]", None),
    ("17", None),
    ("self.path", None),
]


@pytest.mark.parametrize(("expression", "path"), PATHS)
def test_the_text_of_a_path_is_put_together_from_what_is_known(
    tmp_path: Path, expression: str, path: str | None
) -> None:
    source = "NAME: str = 'index'\nNUMBER = 3\n" + LOOP.format(expression)
    assert find(tmp_path, source, folder="/c") == path


def test_a_variable_that_is_set_to_itself_ends_nowhere_and_is_not_known(tmp_path: Path) -> None:
    assert find(tmp_path, "a = b\nb = a\n" + LOOP.format("a")) is None
    assert find(tmp_path, "a = a + 'x'\n" + LOOP.format("a")) is None


CLASS = """\
class Lock:
    def __init__(self, path, limit):
        {0}
    def wait(self):
        while os.path.exists(self.path):
            sleep(1)  # here
def build(folder):
    lock = {1}
    lock.wait()  # above
"""


@pytest.mark.parametrize(
    ("sets", "makes", "path"),
    [
        ("self.path = path", "Lock(folder + '/a', 3)", "/c/a"),
        ("self.path = Path(path)", "Lock(folder + '/a', 3)", "/c/a"),
        ("self.path = path", "Lock(limit=3, path=folder)", "/c"),
        ("self.path = '/fixed'", "Lock(folder, 3)", "/fixed"),
        ("self.path: str = '/fixed'", "Lock(folder, 3)", "/fixed"),
        ("self.path = pick(path)", "Lock(folder, 3)", None),
        ("self.path = path", "make(folder)", None),
        ("self.path = path", "Lock()", None),
        ("self.other = path", "Lock(folder, 3)", None),
    ],
)
def test_the_path_of_an_object_is_what_it_was_made_with(
    tmp_path: Path, sets: str, makes: str, path: str | None
) -> None:
    file = tmp_path / "job.py"
    source = CLASS.format(sets, makes)
    file.write_text(source, encoding="utf-8")
    above = next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# above"))
    frames = (
        Frame("Lock.wait", str(file), line_of(source)),
        Frame("build", str(file), above, texts=(("folder", "/c"),)),
    )
    found = find_polled_path(frames)
    assert (found[1] if found else None) == path


def test_frames_of_c_and_of_the_standard_library_have_no_loop(tmp_path: Path) -> None:
    source = LOOP.format("'/c/lock'")
    (tmp_path / "job.py").write_text(source)
    inner = (
        Frame("sleep", "libc.so.6", 0, native=True),
        Frame("wait", "/usr/lib/python3.11/threading.py", 320),
    )
    own = Frame("f", str(tmp_path / "job.py"), 2)
    assert find_polled_path((*inner, own)) == (own, "/c/lock")
    assert find_polled_path(inner) is None
    assert find_polled_path((Frame("f", str(tmp_path / "gone.py"), 2),)) is None


def test_a_polling_place_is_named_as_a_stack_names_it() -> None:
    assert format_polling_place(Frame("Lock.wait", "/a/b/job.py", 5)) == "Lock.wait (job.py:5)"
