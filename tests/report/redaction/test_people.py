"""`--anonymous`: users, home folders, hosts and addresses have stable pseudonyms."""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.base.verdict_facts import Ranks, Verdict, Where
from hangbisect.report.pseudonyms import Known
from hangbisect.report.redaction import Redactor, redactor_for
from hangbisect.report.run_reader.run import RecordedRun
from hangbisect.report.run_reader.run_files import JobEnvironment

KNOWN_FOLDER = Path("run")
KNOWN = Known(hosts=("n03.cluster.org", "n04"), users=("ada", "root"), homes=("/lustre/home/ada",))


def shown(text: str) -> str:
    return Redactor(anonymous=True, known=KNOWN).text(text)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("n03 waits for n04.cluster.org:29500", "host-1 waits for host-2:29500"),
        ("debug-n03.log n03-ib0", "debug-host-1.log host-1-ib0"),
        ("/lustre/home/ada/x.py", "/home/user-1/x.py"),
        ("/home/bob/x /Users/ada/y", "/home/user-2/x /home/user-1/y"),
        ("ada's ada_2026", "user-1's user-1_2026"),
        ("10.1.2.3:29500 -> 10.1.2.4:1", "address-1:29500 -> address-2:1"),
        ("[2001:db8::1]:29500 fe80::1%eth0", "[address-1]:29500 address-2%eth0"),
        ("02:42:ac:11:00:02", "mac-1"),
        ("http://proxy.corp.intern:3128/", "http://host-3:3128/"),
        ("ip-10-0-3-17.ec2.internal", "host-3"),
        ("bob@corp.org", "mail-1"),
    ],
)
def test_who_and_where_are_replaced(text: str, instead: str) -> None:
    assert shown(text) == instead


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:18080 0.0.0.0:80 ::1 localhost",
        "/root/x.py in torch.distributed.n04",
        "https://api.wandb.ai/graphql https://huggingface.co/gpt2",
        "nvidia-cublas-cu12 12.4.5.8 ==12.4.5.8 driver v1.2.3.4",
        "12:30:45.123 c10d::TCPStore std::vector 0000:3b:00.0",
        "canada xn03x adamw n0300",
        "git@github.com:pytorch/pytorch.git",
        "host-7 user-3 address-2",
    ],
)
def test_what_every_machine_has_stays(text: str) -> None:
    assert shown(text) == text


def test_without_anonymous_nobody_is_replaced() -> None:
    text = "n03 ada /home/ada 10.1.2.3"
    assert Redactor(known=KNOWN).text(text) == text


def test_variables_that_hold_a_host_or_a_user_tell_their_names() -> None:
    redactor = Redactor(anonymous=True)
    assert redactor.value("MASTER_ADDR", "gpu17") == "host-1"
    assert redactor.value("PET_RDZV_ENDPOINT", "gpu17:29400") == "host-1:29400"
    assert redactor.value("SLURM_JOB_NODELIST", "gpu[01-16]") == "hosts-1"
    assert redactor.value("USER", "carol") == "user-1"
    assert redactor.text("carol on gpu17") == "user-1 on host-1"
    assert redactor.counts == {"host name": 4, "user name": 2}


def test_a_host_that_is_met_later_is_replaced_in_what_was_harmless_before() -> None:
    redactor = Redactor(anonymous=True)
    assert redactor.text("on gpu17") == "on gpu17"
    redactor.value("HOSTNAME", "gpu17")
    assert redactor.text("on gpu17") == "on host-1"


def test_a_run_names_its_own_hosts_and_users() -> None:
    where = tuple(Where(rank, host, 7, None, "", 1.0) for rank, host in ((0, "n03"), (1, "n04")))
    run = RecordedRun(
        folder=KNOWN_FOLDER,
        verdict=Verdict("hang", "startup", (), 0, 2, None, Ranks(), where=where),
        environment=JobEnvironment(host="n03", ranks={"0": {"USER": "ada", "HOME": "/data/ada"}}),
    )
    redactor = redactor_for(run, anonymous=True)
    assert redactor.text("n04: /data/ada/x, n03: ada") == "host-2: /home/user-1/x, host-1: user-1"


def test_marks_agree_whenever_a_run_is_redacted() -> None:
    one, two = "Kx2-one-7Zq8", "Kx2-two-7Zq8"
    run = RecordedRun(
        folder=KNOWN_FOLDER,
        environment=JobEnvironment(ranks={"0": {"API_KEY": one}, "1": {"API_KEY": two}}),
        stacks={"rank-0.txt": f"key = '{two}'"},
    )
    first, second = redactor_for(run), redactor_for(run)
    assert (first.text(two), first.text(one)) == ("[API key 2]", "[API key 1]")
    assert (second.text(one), second.text(two)) == ("[API key 1]", "[API key 2]")
