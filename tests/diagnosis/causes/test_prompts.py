"""Questions that nobody answers."""

from __future__ import annotations

from hangbisect.base.process_facts import Descriptor
from hangbisect.diagnosis.verdict import judge_job

from ..made_up import held, job, look, rank
from .scenes import Facts, Shows, causes_of

TERMINAL = (Descriptor(0, "tty", "/dev/pts/3"),)


def wandb_prompt() -> Facts:
    one = look(
        "unix_getpass STD/getpass.py:69",
        "_terminput SP/wandb/errors/term.py:402",
        "terminput SP/wandb/errors/term.py:326",
        "_use_existing_account SP/wandb/sdk/lib/wbauth/prompt.py:157",
        "_login SP/wandb/sdk/wandb_login.py:200",
        "init SP/wandb/sdk/wandb_init.py:1480",
        "<module> train.py:7",
        call="read",
        descriptors=TERMINAL,
    )
    return job(), [rank(0, one), held(1)]


def remote_code_prompt() -> Facts:
    one = look(
        "resolve_trust_remote_code SP/transformers/dynamic_module_utils.py:766",
        "AutoModel.from_pretrained SP/transformers/models/auto/auto_factory.py:340",
        "<module> train.py:7",
        call="read",
        descriptors=TERMINAL,
    )
    return job(), [rank(n, one) for n in (0, 1)]


def password_prompt() -> Facts:
    ssh = (look(pid=500, ppid=100, name="ssh", call="read", descriptors=TERMINAL, rung="proc"),)
    one = look("Popen.wait STD/subprocess.py:1264", "<module> train.py:7", call="wait4")
    return job(), [rank(0, one, children=(ssh,)), held(1)]


def prompt() -> Facts:
    one = look("ask setup.py:4", "<module> train.py:7", call="read", descriptors=TERMINAL)
    return job(), [rank(0, one), held(1)]


SHOWS: Shows = {
    "wandb-prompt": wandb_prompt,
    "remote-code-prompt": remote_code_prompt,
    "password-prompt": password_prompt,
    "prompt": prompt,
}


def test_reading_a_file_is_no_question() -> None:
    file = (Descriptor(5, "file", "/data/x"),)
    one = look("read train.py:3", call="read", descriptors=file)
    assert "prompt" not in causes_of((job(), [rank(0, one), held(1)]))


def test_ssh_that_waits_for_the_network_asks_nothing() -> None:
    pipe = (Descriptor(5, "socket", "socket:[9]"),)
    ssh = (look(pid=500, ppid=100, name="ssh", call="poll", descriptors=pipe, rung="proc"),)
    one = look("Popen.wait STD/subprocess.py:1264", "<module> train.py:7", call="wait4")
    assert "password-prompt" not in causes_of((job(), [rank(0, one, children=(ssh,)), held(1)]))


def test_a_pipe_that_is_read_as_descriptor_0_is_its_standard_input() -> None:
    stdin = Descriptor(0, "pipe", "pipe:[4711]", other_ends=(55,))
    one = look("<module> train.py:5", call="read", descriptors=(stdin,))
    verdict = judge_job(job(), [rank(0, one), held(1)])
    assert verdict.cause is not None
    assert verdict.cause.id == "prompt"
    assert "its standard input (pipe:[4711])" in verdict.cause.why
    assert verdict.waits_for is not None
    assert verdict.waits_for.detail == "pipe:[4711], its standard input"


def test_a_program_of_any_name_that_reads_the_terminal_asks_something() -> None:
    """What bash, or a tool nobody knows, asks is seen by nobody where its output is captured."""
    tool = look(pid=500, ppid=100, name="fetch", call="read", descriptors=TERMINAL, rung="proc")
    one = look("Popen.wait STD/subprocess.py:1264", "<module> train.py:7", call="wait4")
    verdict = judge_job(job(), [rank(0, one, children=((tool,),)), held(1)])
    assert verdict.cause is not None
    assert verdict.cause.id == "prompt"
    assert "fetch (500)" in verdict.cause.why


def test_a_program_that_reads_a_pipe_asks_nothing() -> None:
    feed = (Descriptor(0, "pipe", "pipe:[9]"),)
    tool = look(pid=500, ppid=100, name="fetch", call="read", descriptors=feed, rung="proc")
    one = look("Popen.wait STD/subprocess.py:1264", "<module> train.py:7", call="wait4")
    assert "prompt" not in causes_of((job(), [rank(0, one, children=((tool,),)), held(1)]))
