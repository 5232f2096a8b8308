"""Questions on a terminal that nobody sees or answers."""

from __future__ import annotations

import re

from ..frames import worded
from .known import Found, KnownCause, also, need, unless
from .processes_seen import blocked
from .scene import Scene
from .signs import frame_in, others_wait_for_it

_ASKS = r"prompt|confirm|ask|getpass|unix_getpass|_raw_input|input|terminput|_?timed_input|readline"
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
_ASKING_PROGRAMS = re.compile(r"ssh|ssh-askpass|ssh-add|scp|sudo|git-remote-https?|passwd|gpg")


def _reads_its_input(scene: Scene) -> Found | None:
    """A rank reads its standard input or a terminal."""
    wait = scene.verdict.waits_for
    if wait is not None and wait.kind == "input":
        return Found(f"it waits for input from {wait.detail}", {"input": wait.detail})
    call = scene.view.call if scene.view else None
    for descriptor in call.descriptors if call else ():
        named = descriptor.path.startswith(_TERMINALS) or descriptor.kind == "tty"
        if named or (descriptor.fd == 0 and scene.call in ("read", "poll", "select", "pselect6")):
            return Found(
                f"{scene.call} on descriptor {descriptor.fd}, {descriptor.path}",
                {"input": descriptor.path},
            )
    return None


def _asks_in_a_library(scene: Scene) -> Found | None:
    """Its frames are those of a question (getpass, prompt, confirm)."""
    for frame in [f for f in scene.frames if not f.native][:6]:
        if re.fullmatch(_ASKS, frame.name.rpartition(".")[2]):
            return Found(f"frame {worded(frame)}")
    return None


def _asking_child(scene: Scene) -> Found | None:
    """A child that asks for passwords (ssh, sudo, git) reads a terminal."""
    for look in scene.children:
        kernel = next((k for k in look.kernel if k.tid == look.pid), None)
        call = kernel.syscall if kernel else None
        paths = [d.path for d in (call.descriptors if call else ())]
        reads = call is not None and call.name in ("read", "poll", "ppoll", "select", "pselect6")
        terminal = next((p for p in paths if p.startswith(_TERMINALS)), "")
        if reads and terminal and _ASKING_PROGRAMS.fullmatch(look.name):
            return Found(f"{look.name} ({look.pid}) reads {terminal}", {"program": look.name})
    return None


def _waits_for_the_asking(scene: Scene) -> Found | None:
    """The rank waits for that program."""
    for view in blocked(scene)[1:]:
        if _ASKING_PROGRAMS.fullmatch(view.look.name):
            return Found(f"it waits for {view.look.name} ({view.look.pid})")
    return None


_wandb_asks = frame_in(
    r"wandb/(?:sdk/lib/(?:apikey|wbauth/prompt|timed_input)|errors/term|util|sdk/wandb_login)\.py",
    r"prompt\w*|_prompt\w*|terminput|_terminput|confirm|timed_input|_posix_timed_input"
    r"|_use_existing_account|_create_new_account|_find_or_prompt_for_key",
    "A rank is in W&B's question for an account or a key",
)
_transformers_asks = frame_in(
    r"transformers/dynamic_module_utils\.py",
    "resolve_trust_remote_code",
    "A rank is in resolve_trust_remote_code",
)

CAUSES = (
    KnownCause(
        id="wandb-prompt",
        title="W&B asks for a key on a terminal, and nobody answers",
        signs=(need(_wandb_asks, 0.7), need(_reads_its_input, 0.6), also(others_wait_for_it, 0.1)),
        why="There is no key for W&B, so it asks on the terminal ({input}). Between the lines of "
        "all ranks the question is easily missed.",
        avoid=(
            "WANDB_API_KEY=<key>, or `wandb login` once on this machine",
            "WANDB_MODE=offline: no live charts until `wandb sync`",
        ),
        toggles=(("wandb", "offline"), ("wandb", "off")),
        references=("orrzohar/PROB#62",),
    ),
    KnownCause(
        id="remote-code-prompt",
        title="transformers asks whether to run the model's own code, and nobody answers",
        signs=(need(_transformers_asks, 0.7), need(_reads_its_input, 0.6)),
        why="The model brings code of its own, and trust_remote_code is not given, so every rank "
        "asks on the same terminal ({input}).",
        avoid=("trust_remote_code=True if you trust it, False if not",),
        references=("huggingface/diffusers#10727",),
    ),
    KnownCause(
        id="password-prompt",
        title="a program that a rank started asks for a password",
        signs=(need(_asking_child, 0.7), also(_waits_for_the_asking, 0.5)),
        why="{program} asks on a terminal, and nobody answers.",
        avoid=("keys or tokens instead of passwords; ssh -o BatchMode=yes fails and does not ask",),
        references=("deepspeedai/DeepSpeed#1832",),
    ),
    KnownCause(
        id="prompt",
        title="a rank asks a question, and nobody answers",
        signs=(
            need(_reads_its_input, 0.7),
            also(_asks_in_a_library, 0.3),
            unless(_wandb_asks),
            unless(_transformers_asks),
        ),
        why="A rank reads {input}: it asked something, or a debugger (pdb, breakpoint()) waits for "
        "a command.",
        avoid=(
            "start with </dev/null: what asks then fails at once, and says where",
            "answer by an argument or a variable",
        ),
        references=("huggingface/diffusers#10727", "orrzohar/PROB#62"),
    ),
)
