"""A program on this machine that starts tasks on others (ssh, srun, kubectl). Of one that starts
tasks of ours: what these print, a line at a time, and what they are told. Of an ssh that a launcher
has started: which host it reaches, and how.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .launchers import BY_PROGRAM, BY_STARTER

MOST_LINE = 1 << 20  # bytes of a line that a task says; what prints a longer one is none of ours
_MOST_ERRORS = 4096  # bytes of the end of what it says on stderr
_DESCRIPTORS_EACH, _DESCRIPTORS_OWN = 6, 200  # of a client: three pipes, both ends as it starts

Hear = Callable[[bytes | None], None]  # is given each line, and None when no more come


def allow_descriptors(clients: int) -> None:
    """Raise our limit of open descriptors for so many clients, as far as that is allowed: 1,024 is
    usual, and 300 clients take more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients * _DESCRIPTORS_EACH + _DESCRIPTORS_OWN
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class ClientProgram:
    """One that was started, or could not be: then `errors` says why."""

    def __init__(self, process: asyncio.subprocess.Process | None, errors: str = "") -> None:
        self.process, self.errors = process, errors
        self.readers: list[asyncio.Task[None]] = []

    @property
    def status(self) -> int | None:
        """Its exit status; None: it has not ended, or was never started."""
        return self.process.returncode if self.process is not None else None

    def tell(self, line: str) -> None:
        """Send its tasks a line."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self.process.stdin.write(f"{line}\n".encode())

    async def end(self, limit: float) -> None:
        """End its tasks by the end of their input, and itself, by force where it takes longer than
        `limit` seconds.
        """
        process = self.process
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                process.stdin.close()
        for end in (None, process.terminate, process.kill):
            with contextlib.suppress(ProcessLookupError):
                if end is not None and process.returncode is None:
                    end()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), limit)
                break
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)


def find_error_line(said: str) -> str:
    """Return the telling line of what a failed program said on stderr: one of our own, else the
    last.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line.removeprefix("hangbisect: ") for line in lines if line.startswith("hangbisect: ")]
    return (own[:1] or lines[-1:] or [""])[0][:300]


async def start_client(
    words: Sequence[str], hear: Hear, environment: Mapping[str, str] | None = None
) -> ClientProgram:
    """Start a program, and have `hear` called with each line that its tasks print; with None once
    they print no more, or where it cannot be started.
    """
    # A fork copies the page tables of all that machines have told: 16 ms of a processor with 600
    # MB, and vfork takes 0.5 ms. That it holds the GIL (base/deadline.py) is no matter:
    # asyncio waits for the start of a program in its only thread.
    subprocess._USE_VFORK = True  # type: ignore[misc]  # it is Final, and made to be set
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            env=None if environment is None else dict(environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MOST_LINE,
            start_new_session=True,  # a Ctrl-C on the terminal is not for it
        )
    except OSError as error:
        hear(None)
        return ClientProgram(None, f"{words[0]}: {error.strerror or error}")
    finally:
        subprocess._USE_VFORK = False  # type: ignore[misc]  # the same
    client = ClientProgram(process)
    errors = asyncio.create_task(_read_errors(client))
    client.readers = [errors, asyncio.create_task(_read_lines(client, hear, errors))]
    return client


async def _read_lines(client: ClientProgram, hear: Hear, errors: asyncio.Task[None]) -> None:
    assert client.process is not None
    assert client.process.stdout is not None
    with contextlib.suppress(ValueError):  # a line that is too long
        while line := await client.process.stdout.readline():
            hear(line)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(errors), 1.0)
        await asyncio.wait_for(client.process.wait(), 1.0)
    hear(None)


async def _read_errors(client: ClientProgram) -> None:
    assert client.process is not None
    assert client.process.stderr is not None
    while block := await client.process.stderr.read(4096):
        client.errors = (client.errors + block.decode(errors="replace"))[-_MOST_ERRORS:]


class SshClient(NamedTuple):
    """An ssh that starts a part of a job on another host."""

    host: str  # as its command names it, perhaps with a user
    options: tuple[str, ...]  # by which that host is reached, and nothing else is changed
    remote: str  # the command on that host


_WITH_VALUE = "BbcDEeFIiJLlmOoPpQRSWw"  # letters of ssh(1), OPTIONS, that a value follows
_REACH_BY = "FiJlp"  # those that say how the host is reached
_REACH_BY_NAMES = re.compile(
    r"(?:HostName|Port|User|IdentityFile|IdentitiesOnly|ProxyJump|ProxyCommand|UserKnownHostsFile"
    r"|GlobalKnownHostsFile|StrictHostKeyChecking|HostKeyAlias|AddressFamily|ConnectTimeout"
    r"|CheckHostIP|LogLevel)\b",
    re.IGNORECASE,
)
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?|.+\.(?:py|sh)")
_SHELL = ("bash", "sh", "zsh", "ksh")
_STARTS_RANKS = {*BY_PROGRAM, *BY_STARTER, "hydra_pmi_proxy", "hydra_bstrap_proxy"}


def read_ssh_client(words: Sequence[str]) -> SshClient | None:
    """Return which host an ssh reaches, by the words of its command; None for any other program,
    and for an ssh that starts neither a Python, nor a script, nor what starts ranks: a tunnel, a
    copy of files, git.
    """
    if not words or os.path.basename(words[0]) not in ("ssh", "rsh"):
        return None
    options: list[str] = []
    host, at = "", 1
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-":
            if host:
                at -= 1
                break
            host = word
        elif word == "--":
            host = host or "".join(words[at : at + 1])
            at += 1
            break
        else:
            letter, value = _find_valued_letter(word)
            if letter and not value:
                value = "".join(words[at : at + 1])
                at += 1
            if letter in {*_REACH_BY} or (letter == "o" and _REACH_BY_NAMES.match(value)):
                options += [f"-{letter}", value]
    remote = " ".join(words[at:])
    return SshClient(host, tuple(options), remote) if host and _may_start_ranks(remote) else None


def _find_valued_letter(word: str) -> tuple[str, str]:
    """Return the letter among those of one word that a value follows, and what of the value stands
    in the same word; "" for none.
    """
    for at, letter in enumerate(word[1:], 2):
        if letter in _WITH_VALUE:
            return letter, word[at:]
    return "", ""


def _may_start_ranks(remote: str) -> bool:
    names = [os.path.basename(word.strip("\"'(){};")) for word in remote.split()]
    return any(n in _STARTS_RANKS or n in _SHELL or _PYTHON.fullmatch(n) for n in names if n)
