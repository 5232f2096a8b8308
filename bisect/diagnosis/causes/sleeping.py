"""Code of the job's own that sleeps: after an error that nobody saw, in a loop, or because it is
told to.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from ..process.blocked_syscalls import SLEEP_CALLS
from ..process.frames import format_frame, frame_owner
from ..process.time_limits import waits_anew
from ..proof_of_hang import describe_listening
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import a_child_died, frame_in, others_wait_for_it, raised_before
from .threads import find_catching_loop, find_side_threads

_WAITS = r"(?:^|/)(?:threading|queue|signal|asyncio/\w+|selectors)\.py$|<frozen threading>"
_NEAR = 3  # frames from where it sleeps: what is called further out is the job, not its handling
_LOGGED = 0.7  # what a line is worth, perhaps an old one, next to the source
_PAUSES = SLEEP_CALLS | {"futex"}
_SHORT = 60.0  # seconds: whoever sleeps so long in one go does not poll
_FAILURE = (
    r"(?i)\b(?:traceback|\w*error|\w*exception|failed|failure|will retry|retrying|try again"
    r"|giving up|gave up)\b[^\n]{0,80}"
)


def _own_code_sleeps(scene: Scene) -> Found | None:
    """A rank sleeps in the job's own code (time.sleep)."""
    view = scene.view
    if view is None or view.running or view.holds_gil or scene.call not in SLEEP_CALLS - {"pause"}:
        return None
    wait = scene.verdict.waits_for
    frame = next(iter(scene.python), None)
    if frame is None or frame_owner(frame, scene.job.package) not in ("user", "step"):
        return None
    if wait is not None and wait.kind not in ("sleep", "rank"):
        return None
    return Found(f"it sleeps in {format_frame(frame)}", {"place": format_frame(frame)})


def _sleeps_once(scene: Scene) -> Found | None:
    """A rank sleeps in the job's own code (time.sleep)."""
    found = _own_code_sleeps(scene)
    # Of a sleep whose length nobody knows it may be one of many: a loop that looks for something.
    return replace(found, doubtful=not _left(scene)) if found is not None else None


def _stays_there(scene: Scene) -> Found | None:
    """A rank sleeps in the job's own code, waits there below an `except` (for an Event), or waits
    for its peers after a step that raised.
    """
    raised = raised_before(scene)
    if raised is not None:
        return Found(f"it waits for its peers in {raised.values['place']}", raised.values)
    asleep = _own_code_sleeps(scene)
    if asleep is not None or scene.view is None or scene.view.running:
        return asleep
    served = _takes_tasks_and_catches(scene)
    if served is not None:
        return Found(f"it waits for its next task in {served.values['place']}", served.values)
    caught = _in_a_handler(scene) if scene.call in ("futex", "pause", *SLEEP_CALLS) else None
    if caught is None or scene.group is not None:
        return None
    return Found(f"it waits in {format_frame(scene.python[0])}", caught.values)


def _pauses(scene: Scene) -> Found | None:
    """A rank sleeps in the job's own code, or waits there with a time limit (for an Event)."""
    asleep = _own_code_sleeps(scene)
    if asleep is not None or scene.view is None or scene.view.running or scene.group is not None:
        return asleep
    own = itertools.dropwhile(lambda f: re.search(_WAITS, f.file) is not None, scene.python)
    frame = next(own, None)
    if scene.call != "futex" or not _left(scene) or frame is scene.python[0]:
        return None
    if frame is None or frame_owner(frame, scene.job.package) not in ("user", "step"):
        return None
    # Another thread may be to end it: what that waits for is the cause then.
    doubtful = bool(find_side_threads(scene))
    place = format_frame(frame)
    return Found(f"it pauses in {place}", {"place": place}, doubtful=doubtful)


def _left(scene: Scene) -> tuple[float, ...]:
    """Return what is left of the sleep in each look that tells, or of another pause with a time
    limit, as Event.wait() makes one.
    """
    looks = scene.subject.looks if scene.subject is not None else ()
    mains = [next((k for k in look.kernel if k.tid == look.pid), None) for look in looks]
    calls = [k.syscall for k in mains if k is not None and k.syscall is not None]
    return tuple(c.timeout for c in calls if c.name in _PAUSES and c.timeout is not None)


def pauses_again_and_again(scene: Scene) -> Found | None:
    """It sleeps for a short time, again and again, in the same place: two looks show two sleeps."""
    left, subject = _left(scene), scene.subject
    if not left or max(left) > _SHORT or subject is None:
        return None
    if not any(waits_anew(*pair) for pair in itertools.pairwise(subject.looks)):
        return None
    return Found(f"it sleeps for {max(left):.3g} s at most, in the same place in every look")


def _its_server_is_idle(scene: Scene) -> Found | None:
    """It sleeps below an `except`, and a server that it has started waits for requests meanwhile:
    where, is to be compared with what the loop asks.
    """
    frames = itertools.islice(scene.python, _NEAR)
    if not any(frame.handler for frame in frames):
        return None
    idle = describe_listening(scene.children)
    return Found(f"{idle}, and waits for requests meanwhile") if idle else None


def _for_long(scene: Scene) -> Found | None:
    """The sleep is a long one."""
    left = _left(scene)
    return Found(f"{left[-1]:.0f} s of the sleep are left") if left and left[-1] > _SHORT else None


def _in_a_handler(scene: Scene) -> Found | None:
    """Its source shows that it sleeps below an `except`: an exception was raised and caught."""
    if pauses_again_and_again(scene) is not None:
        return None  # a loop that looks whether a file is there yet goes by exceptions as well
    own = itertools.dropwhile(lambda f: re.search(_WAITS, f.file) is not None, scene.python)
    for frame in itertools.islice(own, _NEAR):
        if frame_owner(frame, scene.job.package) not in ("user", "step"):
            return None
        if frame.handler:
            values = {"handler": frame.handler, "place": format_frame(frame)}
            return Found(f"{format_frame(frame)} stands below `{frame.handler}`", values)
    return None


def _takes_tasks_and_catches(scene: Scene) -> Found | None:
    """Others wait for it while it waits for its next task at a queue, and the loop around that
    catches whatever a task of it raises: one may have failed, which nothing else tells.
    """
    caught = find_catching_loop(scene)
    if caught is None or not others_wait_for_it(scene):
        return None
    place = format_frame(caught)
    words = f"the loop around {place} catches what its tasks raise (`{caught.catches}`)"
    return Found(words, {"place": place}, doubtful=True)


def _a_failure_was_caught(scene: Scene) -> Found | None:
    """A step of it raised, it sleeps below an `except`, or it logged an error, or that it would try
    again.
    """
    caught = raised_before(scene) or _in_a_handler(scene) or _takes_tasks_and_catches(scene)
    wrote = _wrote_of_a_failure(scene) if caught is None else None
    return caught or (replace(wrote, trust=_LOGGED) if wrote is not None else None)


def _wrote_of_a_failure(scene: Scene) -> Found | None:
    """It logged an error, or that it would try again."""
    found = scene.wrote(_FAILURE, (scene.subject,) if scene.subject is not None else ())
    return Found(f'it wrote "{found[1][0].strip()[:120]}"') if found is not None else None


_retries = frame_in(
    r"(?:tenacity|backoff|retrying|retry|stamina)/\S+\.py|urllib3/util/retry\.py"
    r"|google/api_core/retry\S*\.py|botocore/\S+\.py",
    r"_?sleep\w*|__call__|call|_?retry\w*|wrapped_f|wrapper|iter|do|_make_request",
    "A library retries what failed (tenacity, backoff, urllib3, botocore)",
)
_of_a_service = frame_in(r"(?:wandb|huggingface_hub)/\S+\.py", r".*", "W&B or the hub is asked")


def _asleep(scene: Scene) -> Found | None:
    """It sleeps meanwhile."""
    return Found("it sleeps between two tries") if scene.call in SLEEP_CALLS else None


def _tries(scene: Scene) -> Found | None:
    """A library sleeps between two tries."""
    frame = scene.users_frame(scene.python)
    if _retries(scene) is None or _asleep(scene) is None:
        return None
    where = format_frame(frame) if frame is not None else "unknown code"
    return Found(f"what fails was called in {where}", {"place": where})


CAUSES = (
    KnownCause(
        id="swallowed-exception",
        title="a rank failed, nobody was told, and it stays where it caught the exception",
        signs=(
            need(_stays_there, 0.4),
            need(_a_failure_was_caught, 0.55),
            also(_for_long, 0.2),
            also(others_wait_for_it, 0.2),
        ),
        why="It failed before, and now stays in {place}: an `except` or a `finally` keeps the "
        "exception from ending it. The others wait for it.",
        avoid=(
            "let the exception end the rank: torchrun then ends the others and says why",
            "`logging.exception` in that `except`, at least: it shows the traceback",
            "no collective in a `finally`: a rank that failed comes to it, and the others do not",
        ),
        references=("Lightning-AI/pytorch-lightning#8130",),
    ),
    KnownCause(
        id="polling-loop",
        title="a rank sleeps and looks, again and again, for something that does not come",
        signs=(
            need(_pauses, 0.45),
            need(pauses_again_and_again, 0.4),
            also(others_wait_for_it, 0.2),
            also(_its_server_is_idle, 0.1),
            unless(_wrote_of_a_failure),
            unless(a_child_died),
        ),
        why="A loop in {place} waits for something (a file of another rank, say) that does not "
        "come. No system call says for what.",
        avoid=(
            "look what the loop waits for: a path that is not shared between nodes, a step that "
            "another rank leaves out",
            "a time limit in that loop, and a message that names what is missing",
        ),
        references=("allenai/OLMo#235", "KempnerInstitute/KempnerForge#49"),
    ),
    KnownCause(
        id="own-code-sleeps",
        title="the job's own code sleeps",
        signs=(
            need(_sleeps_once, 0.5),
            also(_for_long, 0.3),
            also(others_wait_for_it, 0.2),
            unless(pauses_again_and_again),
            unless(_a_failure_was_caught),
        ),
        why="It sleeps in {place}. If it is to wait for better times after a failure, the failure "
        "was not shown.",
        avoid=(
            "look why that line is reached on this rank: after an `except`, below a condition",
            "let failures end the rank: torchrun then ends the others and says why",
        ),
        references=("Lightning-AI/pytorch-lightning#8130",),
    ),
    KnownCause(
        id="retry-loop",
        title="a library tries again and again what fails every time",
        signs=(need(_retries, 0.5), need(_tries, 0.4), unless(_of_a_service)),
        why="What {place} asks for fails, and a library sleeps between two tries without a word.",
        avoid=(
            "fewer tries, and a limit for all of them: its error then says what fails",
            "logging.basicConfig(level=logging.INFO): most of these libraries log each try",
        ),
        references=("https://tenacity.readthedocs.io/en/latest/",),
    ),
)
