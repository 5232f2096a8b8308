"""Nodes of Slurm without a token: munge tells the lead that they are of the same user. The munged
is a real one, in a folder of the test's.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hangbisect.link import channel
from hangbisect.link.channel import Credentials, Refused
from hangbisect.link.messages import Digest
from hangbisect.link.node import NodeLink

from .test_star import OURS, join_of, run, star, until

WITHOUT_TOKEN = Credentials("job", by_munge=True)
CLIENT = '#!/bin/sh\nexec {program} --socket={socket} "$@"\n'


def prepare_munge(folder: Path, seen_as: Path, key: bytes) -> list[str]:
    """Write what a munged needs, and clients of it in `bin`; return its command. `seen_as` is the
    folder where it will run.
    """
    folder.chmod(0o755)
    (folder / "key").write_bytes(key)
    (folder / "key").chmod(0o600)
    (folder / "bin").mkdir()
    for name in ("munge", "unmunge"):
        client = folder / "bin" / name
        client.write_text(CLIENT.format(program=shutil.which(name), socket=seen_as / "socket"))
        client.chmod(0o755)
    munged = shutil.which("munged", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if munged is None:
        pytest.skip("no munged here (Debian: munge)")
    files = {"socket": "socket", "key-file": "key", "log-file": "log", "pid-file": "pid"}
    files["seed-file"] = "seed"
    words = [f"--{option}={seen_as / name}" for option, name in files.items()]
    return [munged, "--foreground", "--force", "--num-threads=1", *words]


def wait_for_munged(folder: Path) -> None:
    end = time.monotonic() + 60
    while not (folder / "socket").exists():
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.05)


@pytest.fixture
def munged(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    if not all(map(shutil.which, ("munge", "unmunge"))):
        pytest.skip("no munge here (Debian: munge)")
    with tempfile.TemporaryDirectory(prefix="munge-") as name:  # other users are to reach it
        folder = Path(name)
        words = prepare_munge(folder, folder, os.urandom(32))
        quiet = subprocess.DEVNULL
        started = subprocess.Popen(words, stdout=quiet, stderr=quiet)
        try:
            wait_for_munged(folder)
            monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
            monkeypatch.setenv("SLURM_JOB_ID", "7")
            yield started
        finally:
            end_munged(started)


def end_munged(munged: subprocess.Popen[bytes]) -> None:
    """End it. A signal that comes just before it waits for its next client is heeded only after
    that one, so it is sent again.
    """
    while munged.poll() is None:
        munged.terminate()
        time.sleep(0.05)


def link_to(port: Callable[[], int], credentials: Credentials) -> NodeLink:
    async def find() -> tuple[list[tuple[str, int]], Credentials]:
        return [("127.0.0.1", port())], credentials

    return NodeLink(join_of(1), find, lambda: Digest(()), lambda: None)


@pytest.mark.usefixtures("munged")
@pytest.mark.parametrize("lead", [WITHOUT_TOKEN, Credentials("job", b"k" * 16, by_munge=True)])
def test_a_node_without_a_token_is_led_by_its_users_lead(lead: Credentials) -> None:
    """Whether that has a token of its own, for nodes that share its run folder, or not."""

    async def test() -> None:
        async with star(lead) as made:
            link = link_to(lambda: made.port, WITHOUT_TOKEN)
            task = asyncio.create_task(link.run())
            await until(lambda: link.is_led, "not led")
            assert made.said == []
            task.cancel()

    run(test())


@pytest.mark.usefixtures("munged")
def test_without_a_credential_nobody_is_taken_in() -> None:
    async def test() -> None:
        async with star(WITHOUT_TOKEN) as made:
            for credentials in (Credentials("job"), OURS):
                link = link_to(lambda: made.port, credentials)
                task = asyncio.create_task(link.run())
                await until(lambda link=link: bool(link.refused) or bool(made.said))  # type: ignore[misc]
                assert not link.is_connected
                task.cancel()

    run(test())


@pytest.mark.usefixtures("munged")
def test_a_credential_is_read_once_and_by_its_user_alone() -> None:
    async def test() -> None:
        secret, credential = await channel.make_secret()
        assert await channel.read_secret(credential) == secret
        with pytest.raises(Refused, match="does not accept"):
            await channel.read_secret(credential)  # shown a second time
        of_others = subprocess.run(
            ["munge", "--restrict-uid=65534"], input=secret, capture_output=True, check=True
        )
        with pytest.raises(Refused, match="does not accept"):
            await channel.read_secret(of_others.stdout.decode())
        for wrong in (None, 5, "", "MUNGE:nonsense:", "MUNGE:" + "A" * 5000):
            with pytest.raises(Refused):
                await channel.read_secret(wrong)

    run(test())


@pytest.mark.usefixtures("munged")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_credential_of_another_user_is_refused() -> None:
    made = subprocess.run(
        ["munge"], input=b"k" * 64, capture_output=True, check=True, user=65534, group=65534
    )
    with pytest.raises(Refused, match="it is of user 65534"):
        run(channel.read_secret(made.stdout.decode()))


def test_where_munged_is_gone_that_is_said(munged: subprocess.Popen[bytes]) -> None:
    end_munged(munged)

    async def test() -> None:
        with pytest.raises(Refused, match="munge made no credential"):
            await channel.make_secret()
        async with star(WITHOUT_TOKEN) as made:
            link = link_to(lambda: made.port, WITHOUT_TOKEN)
            task = asyncio.create_task(link.run())
            await until(lambda: bool(link.refused))
            assert "munge" in link.refused
            task.cancel()

    run(test())


def test_munge_is_asked_on_slurm_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("munge", "unmunge"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert not channel.has_munge()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert channel.has_munge()
    (tmp_path / "munge").unlink()
    assert not channel.has_munge()
