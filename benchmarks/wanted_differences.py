"""What the answers of two versions are meant to differ in: a pattern each, and why.

`same_answers.py` compares two installations, and asks this table about each difference, a line:

    - line TEXT        only the first printed it        + line TEXT     only the second
    - file NAME        only the first has left it       + file NAME
    - field FILE: PATH                                  + field FILE: PATH
    value FILE: PATH: WHAT ONLY THE FIRST HAS -> WHAT ONLY THE SECOND HAS
    status (0,) -> (1,)

Numbers stand there as 0. These rows are about what changed after commit 60a9d44. For another pair
of versions empty the table, and let it grow by what is decided to be wanted.
"""

from __future__ import annotations

import re

_LATER_EVIDENCE = (
    *("path", "peer"),  # of an operation of a collective log
    *("awaited_files", "build", "preloaded", "polling", "status", "task_ring", "tasks", "inside"),
    *("library", "takes", "unserved", "ends", "closed_here", "handler", "holds", "stale_locks"),
    *("remote", "waits", "written", "file"),
)
_LATER_FIELDS = (
    r"(?:verdict\.json|printed): \.(?:verdict\.)?(?:guessed|seen_ranks\[\]|trained)",
    r"(?:isolation\.json|printed): \..*(?:place\.trained|keep_watching)",
    r"printed: --keep-watching",
    r"matrix\.json: \..*(?:place\.trained|seen_ranks\[\])",
)
# Those of a row with the name of a run are wanted in that run alone: "own, two ranks: ...".
_WANTED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "a run holds a lock on its folder, so that no other one writes there",
        (r"\+ file .*\.lock",),
    ),
    (
        "evidence that is collected since then",
        (rf"\+ field .*evidence\.json: .*\.(?:{'|'.join(_LATER_EVIDENCE)})(?:\W.*)?",),
    ),
    (
        "fields that came later, for other things than words",
        tuple(rf"\+ field .*{field}" for field in _LATER_FIELDS),
    ),
    (
        "how sure a cause is, is one of three words (seen, fits, guess)",
        (
            r"\+ field .*\.(?:cause|candidates\[\])\.level",
            r"- field .*\.(?:cause\.confidence|candidates\[\]\.score)",
            r"- line cause .* 0 docs/causes/.*",
            r"\+ line cause .* (?:seen|fits|guess) docs/causes/.*",
        ),
    ),
    (
        "sizes are in KiB, MiB and GiB everywhere",
        (
            r"value .*\d [kMG]B\b.* -> .*[KMG]iB.*",
            r"[+-] line bundle\.zip: .* 0 (?:MB|KiB); attach it to an issue",
        ),
    ),
    (
        "what nothing proves to hang is silent at first, and a hang once its step is late",
        (
            r"\+ line (?:SILENT .*|job still running, still watched .*)",
            r"value .*\.seconds\.past_deadline: None -> number",
            r"value .*\.last_line: .* -> Waiting for rank 0 \(0 s\)",
        ),
    ),
    (
        "hang, in a phase: a stack is printed when it is silent, too; 30 lines show other threads",
        (
            r"[+-] line Thread 0 \(idle\): .*",
            r"[+-] line \w+ \((?:(?:call\.py|selectmodule\.c|socketmodule\.c):0|libc\.so\.0)\)",
        ),
    ),
    (
        "hang, reported: a look may come when it has just been ended from outside",
        (r"\+ field .*\.looks\[\]\.sample", r"value .*\.looks\[\]\.state:  -> Z"),
    ),
    (
        "locals that say which group a rank waits in",
        (r"value .*\.frames\[\]\.locals\[\]\[\]:  -> group",),
    ),
    (
        "help: options are explained in plainer words",
        (r"[+-] line .*",),
    ),
    (
        "toggles: values are explained in plainer words",
        (
            r"[+-] line .*from its cache; (?:no rank|nobody) \(HF_HUB_OFFLINE\)",
            r"[+-] line hub: who asks the Hugging Face hub: .*",
        ),
    ),
    (
        "causes: more of them, each with a level; what only says that nothing is known is none",
        (
            r"\+ line [a-z]+(?:-[a-z]+)+ .*",
            r"[+-] line (?:Confidence|Level): .*",
            r"\+ line (?:Files whose being there|Libraries that were put in the place) .*",
            r"- line (?:library-polls|one-rank-behind) .*",
        ),
    ),
    (
        "own, two ranks: a ring over a lock and a collective is found, and is the cause",
        (
            r"\+ field .*\.cause\.\w+(?:\[\])?",
            r"- field .*\.(?:cause|try\[\]\.\w+)",
            r"[+-] line (?:cause unknown|cause .* (?:seen|fits) .*|try .*)",
            r"[+-] line (?:rank 0 -> lock .*|waits for: .*)",
            r"value .*\.(?:chain|graph\.(?:nodes|edges)|candidates)\[\]\..*",
        ),
    ),
    (
        "a field has a plainer name; the older one is read as well",
        (r"- field .*\.nodes\[\]\.ends", r"\+ field .*\.nodes\[\]\.waits_for_nothing"),
    ),
    (
        "what proves a deadlock is told",
        (
            r"value .*\.cause\.matched\[\]:  -> the kernel says so of each of them",
            r"[+-] line because .* lock .* has it\)(?:; the kernel says so of each of them)?",
        ),
    ),
    (
        "what NCCL's watchdog prints is read as well",
        (r"[+-] line hangbisect: .*: expected: what py-spy dump, pystack.*",),
    ),
    (
        "durations are written in one way (8 s, 1 min 5 s)",
        (
            r"[+-] line 0 (?:as you run it|\S+=\S+) 0(?::0| s) .*",
            r"[+-] line HANGS EVEN WITH ALL SAFE 0 starts, (?:0 min )?0 s: .*",
            r"[+-] line isolate starts it again and again: .* none longer than (?:0 h )?0 min\.",
        ),
    ),
    (
        "functions of our own code have other names; they show in tracebacks and stacks",
        (
            r"[+-] line walk(?:_pipeline)?\(pipeline\.steps, context, lines, link\)",
            r"value .*\.traceback: [^\n]*\bwalk\(pipeline.*",
            r"[+-] line stack injections\.py:0 .*",
            r"value .*\.operations\[\]\.origin: \S*training_step\.py:0 .* -> \S*startup\.py:0 .*",
            r"value .*place\.stacks\[\]\[\]\[\]: .*\bwalk\b.*",
        ),
    ),
    (
        "a rank waits for the monitor in poll(), as select() fails on descriptors from 1024 on",
        (r"value .*\.syscall\.name: .*pselect0.* -> .*",),
    ),
    (
        "torchrun's words, and what a rank does, when another has ended; no two starts agree",
        (
            r"[+-] line .*Waiting for rank.*",  # told every five seconds
            r"value .*\.logs\[\]\.lines\[\]: .*",
            r"[+-] line [WE]\d .*torch/distributed/elastic/multiprocessing/api\.py:0\] .*",
            r"value .*\.graph\.edges\[\]\.evidence: runs in .* -> runs in .*",
            r"value .*\.looks\[\]\.(?:dump|threads\[\]\.frames\[\]\.(?:name|file)): .*",
        ),
    ),
)
_PATTERNS = [
    (why, re.compile(pattern, re.DOTALL)) for why, patterns in _WANTED for pattern in patterns
]


def explain_difference(line: str, run: str) -> str:
    """Return why a difference in a run is wanted, "" if nothing says so."""
    for why, pattern in _PATTERNS:
        only, found, _ = why.partition(": ")
        if pattern.fullmatch(line) and (not found or only == run.removeprefix("read ")):
            return why
    return ""
