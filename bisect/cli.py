"""From the command line to the command, and from its errors to an exit status.

The first word decides: a command's name (bisect/commands/), a pid, else the pipeline walk. Our name
alone, as a person types it, shows the jobs that run here.
"""

from __future__ import annotations

from .rank import began as began  # it reads the clock: before any other import

# isort: split
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

from . import commands
from .base.errors import INTERNAL_ERROR as INTERNAL_ERROR
from .base.errors import HangbisectError, UsageError, say
from .base.version import VERSION

USAGE, INTERRUPTED = 2, 130
NOBODY_READS = 141  # 128 and SIGPIPE, as shells have it
SPEAKING = 1.0  # seconds
CONSOLE = "hangbisect"  # what the installed program is called
_LOCAL_RANK = ("--local-rank", "--local_rank")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what `argv` (without the program's name; sys.argv if None) asks; return the exit status.

    2: the command line is wrong. 70: we are. 130: interrupted. 141: nobody reads what we print. Any
    other is the command's own.
    """
    if argv is None:
        # Lightning starts ranks by this path, perhaps after a change of folder.
        with suppress(FileNotFoundError):  # the current folder is gone
            sys.argv[0] = os.path.abspath(sys.argv[0])
        argv = sys.argv[1:]
    try:
        return _run_command(list(argv))
    except UsageError as error:
        # Every rank has the same command line: one of them says what is wrong with it.
        if _first_rank():
            _complain(error)
        else:
            # A launcher ends the others as soon as one has failed: let the first one speak.
            time.sleep(SPEAKING)
        return USAGE
    except HangbisectError as error:
        _complain(error)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Who reads our answer has seen enough (`| head`), and nothing is left to be flushed to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except Exception as error:
        return _internal(error)


def _run_command(argv: list[str]) -> int:
    words, local_rank = _without_local_rank(argv)
    first = words[0] if words else ""
    if first == "--version":
        print(f"hangbisect {VERSION}")
        return 0
    if first in ("-h", "--help"):
        return _help(words)
    if first.isdecimal():
        return _command("attach")(words)
    if not words and _is_bare_call():
        return _command("jobs")([])
    if not first or first.startswith("-"):
        return _command("walk")(argv)
    if first not in commands.names():
        raise _make_unknown_command_error(first)
    if local_rank:
        os.environ.setdefault("LOCAL_RANK", local_rank)
    if first != "watch":  # which is the script's own process
        _forget_coerced_locale()
    status = _command(first)(words[1:])
    if sys.stdout is not None:  # closed, where we were started so
        sys.stdout.flush()
    return status


def _forget_coerced_locale() -> None:
    """Give os.environ, for what is started from here, the LC_CTYPE of this process's own start.

    Python itself sets that variable where the locale is C (PEP 538). Inherited, it would take from
    a job's own Python the UTF-8 mode that it has in such a locale, and tell other programs another
    locale than the user's.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            first = dict(word.partition(b"=")[::2] for word in file.read().split(b"\0"))
    except OSError:
        return
    was = first.get(b"LC_CTYPE")
    if was is not None:
        os.environb[b"LC_CTYPE"] = was
    else:
        os.environb.pop(b"LC_CTYPE", None)


def _command(name: str) -> Callable[[list[str]], int]:
    module = commands.TOGETHER.get(name, name)
    found = import_module(f".{module}", commands.__name__)
    run: Callable[[list[str]], int] = getattr(found, "run" if module == name else name)
    return run


def _without_local_rank(argv: list[str]) -> tuple[list[str], str]:
    """Return `argv` without --local-rank, which old launchers put before all others; its value."""
    if argv and argv[0] in _LOCAL_RANK:
        return argv[2:], argv[1] if len(argv) > 1 else ""
    name, _, value = argv[0].partition("=") if argv else ("", "", "")
    return (argv[1:], value) if name in _LOCAL_RANK else (argv, "")


def _make_unknown_command_error(word: str) -> UsageError:
    from .base.argument_types import nearest

    known = sorted(set(commands.names()) - commands.INTERNAL)
    return UsageError(
        f"there is no command {word!r}; "
        + (f"commands are {', '.join(known)}{nearest(word, known)}" if known else "so far none is"),
        "Without a command, with options only, a pipeline is walked.",
    )


def _help(words: list[str]) -> int:
    found = commands.summaries()
    if found and _first_rank():
        print("Commands (hangbisect COMMAND --help tells more):")
        for name, summary in found.items():
            print(f"  {name:10} {summary}")
        print("\nWithout a command a pipeline is walked:\n")
    return _command("walk")(words)


def _first_rank() -> bool:
    from .base.place import find_place

    return find_place().rank == 0


def _is_bare_call() -> bool:
    """Return whether a person typed our name and nothing else: no launcher starts us as a rank, and
    `-m` or a folder stands for the pipeline.
    """
    from .base.place import find_place

    place = find_place()
    by_name = os.path.basename(sys.argv[0]) == CONSOLE
    return by_name and place.launcher is None and not place.joined


def _complain(error: HangbisectError) -> None:
    help = f"\n{error.help}" if error.help else ""
    _say(f"{error}{help}")


def _say(text: str) -> None:
    if sys.stderr is not None:  # a monitor has none (monitor/monitor_process.py)
        print(f"hangbisect: {text}", file=sys.stderr)
    else:
        say(text)


def _internal(error: Exception) -> int:
    """Say in a sentence that we failed, and where; return the exit status."""
    import traceback

    if os.environ.get("HANGBISECT_DEBUG"):
        traceback.print_exception(error)
    ours = os.path.dirname(__file__)
    frames = traceback.extract_tb(error.__traceback__)
    where = [frame for frame in frames if frame.filename.startswith(ours)][-1]
    _say(
        f"internal error: {type(error).__name__}: {error} "
        f"({os.path.relpath(where.filename, ours)}:{where.lineno})\n"
        "Please report it with the traceback that HANGBISECT_DEBUG=1 shows."
    )
    return INTERNAL_ERROR
