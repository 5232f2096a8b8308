"""Services that a job starts or talks to while it starts: W&B above all."""

from __future__ import annotations

import re

from ...base.process_facts import Look, Socket
from ..process.frames import format_frame
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import ended_with, find_silent_connection, others_wait_for_it, through_a_proxy

_WANDB = r"wandb/(?:sdk|apis|errors|util|beta|cli)\S*\.py"
_STARTS = r"wandb/sdk/(?:lib/)?service/\w+\.py"
_STARTS_IN = "poll_for_token|_poll_once|_wait_for_ports|_launch_server|_start|start"
_GIT = r"wandb/\S*git\S*\.py|(?:^|/)git/(?:cmd|repo/\w+)\.py"
_ASKS = r"wandb/(?:sdk/lib/(?:apikey|wbauth/prompt|timed_input)|errors/term)\.py"
_SERVICE = re.compile(r"wandb-(?:core|service|xpu)|gpu_stats")
_TROUBLE = re.compile(
    r"connection refused|no such host|i/o timeout|dial tcp|context deadline exceeded|retrying"
    r"|server misbehaving|TLS handshake timeout|network is unreachable",
    re.IGNORECASE,
)


def _services(scene: Scene) -> tuple[Look, ...]:
    """Return the subject's processes of W&B."""
    return tuple(
        child
        for child in scene.children
        if _SERVICE.match(child.name) or any("wandb" in word for word in child.command[:3])
    )


def _connections(scene: Scene) -> tuple[tuple[Look, Socket], ...]:
    """Return the connections to W&B's server: of its process, else of the rank in W&B's code."""
    services = {look.pid for look in _services(scene)}
    if services:
        return tuple((look, s) for look, s in scene.outward if look.pid in services)
    own = scene.blocking
    inet = own is not None and own.family != "unix"
    return ((scene.family[0], own),) if own is not None and inet and scene.family else ()


# ---- signs ---------------------------------------------------------------------------------------


def in_wandb(scene: Scene) -> Found | None:
    """A rank waits in W&B's code (wandb.init, wandb.login)."""
    frame = scene.inside(_WANDB)
    elsewhere = scene.inside(_STARTS, _STARTS_IN) or scene.inside(_GIT) or scene.inside(_ASKS)
    if frame is None or elsewhere:
        return None
    return Found(f"it waits in {format_frame(frame)}, in {scene.verdict.call or 'wandb'}")


def _server_is_silent(scene: Scene) -> Found | None:
    """The connection to W&B's server is made, and the server does not answer."""
    for look, socket in _connections(scene):
        if socket.state == "ESTABLISHED":
            who = f"{look.name} ({look.pid})"
            return Found(f"{who} is connected to {socket.peer}", {"peer": socket.peer, "who": who})
    return None


def _helper_does_not_run(scene: Scene) -> Found | None:
    """W&B's process is stopped, frozen or in the kernel: its server is not what is waited for."""
    for look in _services(scene):
        if look.state in "TtD" or look.frozen:
            return Found(f"{look.name} ({look.pid}) is in state {look.state}")
    return None


def _server_is_unreachable(scene: Scene) -> Found | None:
    """The connection to W&B's server is asked for and not answered (SYN_SENT)."""
    for look, socket in _connections(scene):
        if socket.state == "SYN_SENT":
            who = f"{look.name} ({look.pid})"
            return Found(f"{who} asks {socket.peer}, SYN_SENT", {"peer": socket.peer})
    return None


def _server_sends_nothing(scene: Scene) -> Found | None:
    """No byte came over that connection between the first look and the last."""
    return find_silent_connection(scene, _connections(scene))


def _has_no_connection(scene: Scene) -> Found | None:
    """W&B's process is to reach a server, and has no connection to anywhere."""
    services = _services(scene)
    offline = scene.environment.get("WANDB_MODE") in ("offline", "disabled", "dryrun")
    if not services or offline or _connections(scene):
        return None
    return Found(f"{services[0].name} ({services[0].pid}) has no connection")


def _log_complains(scene: Scene) -> Found | None:
    """W&B's own log tells of failed connections."""
    logs = [log for look in scene.family for log in look.logs]
    for log in logs:
        for line in reversed(log.lines):
            if "wandb" in log.path and _TROUBLE.search(line):
                return Found(f"W&B's log says: {_short(line)}")
    return None


def _short(line: str) -> str:
    """Return the error of a line of W&B's log, which is JSON, or the end of the line."""
    errors = re.findall(r'"error":"((?:[^"\\]|\\.)*)"', line)
    words = errors[-1] if errors else line
    return " ".join(words.replace("\\", "").split())[-160:]


def _service_does_not_answer_yet(scene: Scene) -> Found | None:
    """A rank waits for W&B's process to start."""
    frame = scene.inside(_STARTS, _STARTS_IN)
    if frame is None:
        return None
    services = _services(scene)
    who = f"{services[0].name} ({services[0].pid})" if services else "W&B's process"
    return Found(f"it waits in {format_frame(frame)}", {"who": who})


def _several_wait_for_services(scene: Scene) -> Found | None:
    """Several ranks start W&B's process at the same time."""
    ranks = scene.ranks_in(_STARTS, _STARTS_IN)
    return Found(f"{len(ranks)} ranks start W&B's process at once") if len(ranks) > 1 else None


def _runs_git(scene: Scene) -> Found | None:
    """A git that W&B started runs."""
    for child in scene.children:
        if child.name == "git" or child.name.startswith("git-"):
            words = " ".join(child.command[:6]) or "git"
            return Found(f"`{words}` ({child.pid}) runs", {"git": words})
    return None


def _waits_for_git(scene: Scene) -> Found | None:
    """A rank waits for git in W&B's code."""
    frame = scene.inside(_GIT)
    if frame is None or scene.inside(_WANDB) is None:
        return None
    return Found(f"frame {format_frame(frame)} in W&B's code")


_timed_out = ended_with(
    r"(?P<said>Run initialization has timed out after [\d.]+ sec"
    r"|Timed out waiting for wandb service to start after [\d.]+ sec"
    r"|Failed to read port info after [\d.]+ sec|Error communicating with wandb process"
    r"|(?:returned error|CommError)[^\n]{0,120}(?:context deadline exceeded|timed out|refused))",
    "It ended because W&B gave up waiting",
)

# ---- causes --------------------------------------------------------------------------------------

_OFFLINE = "WANDB_MODE=offline: no live charts until `wandb sync`"
_DISABLED = "WANDB_MODE=disabled: no charts at all"

CAUSES = (
    KnownCause(
        id="service-silent",
        title="W&B's server accepts the connection and never answers",
        signs=(
            need(in_wandb, 0.4),
            need(_server_is_silent, 0.65),
            also(_server_sends_nothing, 0.6),
            also(others_wait_for_it, 0.1),
            unless(through_a_proxy),
            unless(_helper_does_not_run),
        ),
        why="{who} is connected to {peer}, which sends nothing. W&B waits for about two minutes, "
        "the other ranks for as long as their time-out lets them.",
        avoid=(
            _OFFLINE,
            _DISABLED,
            "look at WANDB_BASE_URL: does `curl -m 5 $WANDB_BASE_URL` answer from this machine?",
        ),
        toggles=(("wandb", "offline"), ("wandb", "off")),
        references=("wandb/wandb#5017", "wandb/wandb#7671", "wandb/wandb#10669"),
    ),
    KnownCause(
        id="service-unreachable",
        title="W&B's server cannot be reached from this machine",
        signs=(
            need(in_wandb, 0.5),
            need(_server_is_unreachable, 0.75, proves=True),
            unless(through_a_proxy),
            unless(_helper_does_not_run),
        ),
        why="Nothing answers the connection to {peer}: no route, or a firewall is silent. Compute "
        "nodes often have no way out.",
        avoid=(
            _OFFLINE,
            _DISABLED,
            "HTTPS_PROXY=<the cluster's proxy>, if there is one",
        ),
        toggles=(("wandb", "offline"), ("wandb", "off")),
        references=("wandb/wandb#5017", "wandb/wandb#7671"),
    ),
    KnownCause(
        id="service-retries",
        title="W&B's process tries again and again to reach its server",
        signs=(
            need(in_wandb, 0.4),
            need(_has_no_connection, 0.35),
            also(_log_complains, 0.6),
            unless(_helper_does_not_run),
        ),
        why="W&B has no connection to a server at the moment, and wandb.init waits until it has.",
        avoid=(_OFFLINE, _DISABLED, "look at WANDB_BASE_URL, and at W&B's debug-core.log"),
        toggles=(("wandb", "offline"), ("wandb", "off")),
        references=("wandb/wandb#7671", "wandb/wandb#10669"),
    ),
    KnownCause(
        id="service-start-slow",
        title="W&B's own process does not get ready",
        signs=(
            need(_service_does_not_answer_yet, 0.7),
            also(_several_wait_for_services, 0.3),
        ),
        why="wandb.init starts {who} and waits until it says where it listens. Many at once, or "
        "Python from a slow shared disk, take longer than the 30 s that W&B allows.",
        avoid=(
            "start W&B on rank 0 only",
            "WANDB__SERVICE_WAIT=300: wait longer; start-up takes as long as it takes",
            "the environment on a local disk",
        ),
        toggles=(("wandb", "rank0"), ("wandb", "off")),
        references=("wandb/wandb#5214", "wandb/wandb#4224", "wandb/wandb#3911"),
    ),
    KnownCause(
        id="service-timed-out",
        title="W&B gave up: its server or its process did not answer in time",
        signs=(need(_timed_out, 0.85, proves=True),),
        why='W&B waited for an answer, then ended the rank: "{said}". It is a hang with a limit.',
        avoid=(
            _OFFLINE,
            _DISABLED,
            "start W&B on rank 0 only, and wait longer: WANDB_INIT_TIMEOUT=300, "
            "WANDB__SERVICE_WAIT=300",
        ),
        toggles=(("wandb", "rank0"), ("wandb", "offline"), ("wandb", "off")),
        references=("wandb/wandb#5214", "wandb/wandb#5017", "wandb/wandb#4224"),
        outcomes=("crash",),
    ),
    KnownCause(
        id="wandb-git",
        title="W&B asks git about the code, and git does not come back",
        signs=(need(_waits_for_git, 0.6), need(_runs_git, 0.6)),
        why="wandb.init looks at the repository, and `{git}` takes long or for ever: a huge diff, "
        "a slow disk, or a git that asks for a password.",
        avoid=(
            "WANDB_DISABLE_GIT=true: the run does not record the commit",
            "WANDB_DISABLE_CODE=true: nor the code",
        ),
        toggles=(("wandb", "off"),),
        references=("wandb/wandb#708", "wandb/wandb#737", "wandb/wandb#1565"),
    ),
)
