"""Pseudonyms for who and where: users, home folders, hosts and addresses (host-1, user-2,
address-3). Addresses that every machine has stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from functools import lru_cache

from ..base.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Known:
    """Names that are found inside other strings; `--anonymous` replaces them, in this order."""

    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()  # absolute paths


_ONE = re.compile(r"(?:hosts?|user|address|mac|mail)-[0-9]{1,6}")


class Pseudonyms:
    """Gives each name of a kind a number, in the order in which they are met."""

    def __init__(self) -> None:
        """Start with none."""
        self._given: dict[tuple[str, str], str] = {}
        self._last: dict[str, int] = {}

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of `name`, which is always the same."""
        known = self._given.get((kind, name))
        if known is None:
            self._last[kind] = self._last.get(kind, 0) + 1
            known = self._given[kind, name] = f"{kind}-{self._last[kind]}"
        return known

    @staticmethod
    def is_one(name: str) -> bool:
        """Return whether `name` is a pseudonym: such a one is left as it is."""
        return _ONE.fullmatch(name) is not None


_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
# At least three groups, the first as networks have it: `c10d::` of C++ is none, nor is 12:30:45.
_IPV6 = r"(?:fe[89ab][0-9a-f]|f[cd][0-9a-f]{2}|[23][0-9a-f]{3})(?::[0-9a-f]{0,4}){2,7}"
ADDRESS = re.compile(rf"{_IPV4}|\[?{_IPV6}\]?", re.IGNORECASE)
_IN_TEXT = re.compile(
    rf"(?<![\w.:-])(?P<four>{_IPV4})(?![\w-]|\.[0-9])|(?<![\w:.])(?P<six>{_IPV6})(?![\w:])"
    r"|(?<![\w:-])(?P<mac>[0-9a-f]{2}(?::[0-9a-f]{2}){5,19})(?![\w:])",
    re.IGNORECASE,
)
# In front of a version, which may have four parts too: nvidia-cublas-cu12 12.4.5.8, ==12.4.5.8
_VERSION = re.compile(
    r"(?:==|>=|<=|~=|version[:= ]*|[-_/ ]v|\b[a-z]+[\w-]*-cu[0-9]+[ =]+)\Z", re.IGNORECASE
)


def replace_addresses(text: str, names: Pseudonyms, counts: Counter[str]) -> str:
    """Return `text` with pseudonyms for the addresses in it; ports stay."""

    def instead(found: re.Match[str]) -> str:
        if found["mac"]:
            counts["hardware address"] += 1
            return names.of("mac", found["mac"].lower())
        address = _parse_address(found[0])
        if address is None or address.is_loopback or address.is_unspecified:
            return found[0]
        if _VERSION.search(text, max(0, found.start() - 40), found.start()):
            return found[0]
        if address.version == 4 and str(address).startswith(("255.", "224.")):
            return found[0]
        counts["address"] += 1
        return names.of("address", str(address))

    return _IN_TEXT.sub(instead, text) if "." in text or ":" in text else text


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


# Common accounts and names: they identify no person.
_COMMON_NAMES = frozenset(
    (
        *("root", "user", "users", "admin", "ubuntu", "debian", "centos", "ec2-user", "runner"),
        *("jovyan", "nobody", "daemon", "slurm", "vagrant", "mambauser", "coder", "vscode", "node"),
        *("app", "work", "home", "shared", "public", "data", "test", "git", "guest", "default"),
        *("opc", "azureuser", "localhost", "localhost.localdomain", "ip6-localhost", "host"),
        *("none", "any", "linux", "python", "train", "docker"),
    )
)
# Beside a name stands no letter or digit, and before a host no dot, as in the path of a module.
_MOST_NAMES = 4096  # hosts, and users, that are looked for in every text
_EDGE = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"
_SUFFIX = r"(?!(?:log|txt|out|err|jsonl?|py|so|pt|pid|lock|zip|html|md|ya?ml|csv|wandb)\b)"
_HOST_EDGE = (
    rf"(?<![A-Za-z0-9.]){{}}(?:\.{_SUFFIX}[A-Za-z0-9-]{{{{1,63}}}}){{{{0,6}}}}(?![A-Za-z0-9])"
)
_HOME = re.compile(r"/(?P<above>home|Users)/(?P<user>[A-Za-z0-9][\w.@-]{0,63})")
_EMAIL = re.compile(
    r"(?<![\w.+@/:-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,5}(?![\w@:])"
)
_URL_HOST = re.compile(
    r"(?<=://)(?:(?P<user>(?:[^\s/@'\"\[]|\[[A-Za-z& ]{3,30} [0-9]{1,6}\]){1,300})@)?"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,253})"
)
_CLOUD_HOST = re.compile(
    r"(?<![A-Za-z0-9.-])ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[a-z0-9-]+){0,6}"
)
# Services that a report must name to be of use, and that identify no person.
_PUBLIC = re.compile(
    r"(?i)(?:^|\.)(?:wandb\.ai|huggingface\.co|hf\.co|github\.com|githubusercontent\.com|gitlab\.com"
    r"|pytorch\.org|nvidia\.com|nvcr\.io|docker\.io|amazonaws\.com"
    r"|googleapis\.com|google\.com|windows\.net|azure\.com|microsoft\.com|openai\.com|anthropic\.com"
    r"|python\.org|anaconda\.org|conda\.io|comet\.com|neptune\.ai|slack\.com|arxiv\.org|debian\.org"
    r"|ubuntu\.com|example|example\.(?:com|org|net)|localhost)$"
)
# Variables whose whole value is a host, or a list of some.
_HOST_VARIABLE = re.compile(
    r"HOSTNAME|HOST|MASTER_ADDR|PET_MASTER_ADDR|PET_RDZV_ENDPOINT|SLURMD_NODENAME|SLURM_SUBMIT_HOST"
    r"|SLURM_LAUNCH_NODE_IPADDR|\w*_?NODE_?NAME|host|hostname|master_addr|master|node_name"
)
_HOST_LIST = re.compile(r"SLURM_(?:JOB_|STEP_)?NODELIST|SLURM_NODE_ALIASES|PET_NODES")
_USER_VARIABLE = re.compile(
    r"USER|USERNAME|LOGNAME|SUDO_USER|SLURM_JOB_USER|user|username|WANDB_USERNAME"
)
_HOST_AND_PORT = re.compile(r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,253}?)(?P<port>:\d{1,5})?")


class People:
    """Replaces people and machines, each by the same pseudonym everywhere: host-1, user-1."""

    def __init__(self, known: Known) -> None:
        """Number what is `known` first, in its order."""
        self._names = Pseudonyms()
        self._hosts: dict[str, None] = {}
        self._users: dict[str, None] = {}
        self._homes: dict[str, str] = {}
        for host in known.hosts:
            self._meet_host(host)
        for user in known.users:
            self._meet_user(user)
        for home in known.homes:
            self._meet_home(home)

    @property
    def met(self) -> int:
        """How many hosts, users and home folders are looked for."""
        return len(self._hosts) + len(self._users) + len(self._homes)

    def replaced(self, text: str, counts: Counter[str]) -> str:
        """Return `text` with pseudonyms; `counts` gets what was replaced, by kind."""
        text = self._without_homes(text, counts)
        if "@" in text:
            text = _EMAIL.sub(lambda m: self._email(m, counts), text)
        if "://" in text:
            text = _URL_HOST.sub(lambda m: self._url_host(m, counts), text)
        if "ip-" in text:
            text = _CLOUD_HOST.sub(lambda m: self._host(m[0], counts), text)
        for host in self._hosts:
            if host in text:
                text = _pattern(_HOST_EDGE, host).sub(lambda m: self._host(m[0], counts), text)
        for user in self._users:
            if user in text:
                text = _pattern(_EDGE, user).sub(
                    lambda m: self._named("user", m[0], "user name", counts), text
                )
        return replace_addresses(text, self._names, counts)

    def value(self, name: str, value: str, counts: Counter[str]) -> str:
        """Return the value of a variable that holds a host or a user, "" if `name` is none such."""
        if _HOST_LIST.fullmatch(name) and value:
            counts["host name"] += 1
            return self._names.of("hosts", value)
        if _USER_VARIABLE.fullmatch(name) and _is_name(value):
            self._meet_user(value)
            return self._named("user", value, "user name", counts)
        if _HOST_VARIABLE.fullmatch(name) and (found := _HOST_AND_PORT.fullmatch(value)):
            host = found["host"]
            if not _is_name(host) or _PUBLIC.search(host) or ADDRESS.fullmatch(host):
                return ""
            self._meet_host(host)
            return self._host(host, counts) + (found["port"] or "")
        return ""

    def _meet_host(self, host: str) -> None:
        short = host.partition(".")[0]
        if _is_name(short) and not ADDRESS.fullmatch(host):
            self._names.of("host", short)
            if len(self._hosts) < _MOST_NAMES:
                self._hosts[short] = None

    def _meet_user(self, user: str) -> None:
        if _is_name(user):
            self._names.of("user", user)
            if len(self._users) < _MOST_NAMES:
                self._users[user] = None

    def _meet_home(self, home: str) -> None:
        user = home.rstrip("/").rpartition("/")[2]
        if home.count("/") >= 2 and _is_name(user):
            self._homes[home.rstrip("/")] = f"/home/{self._names.of('user', user)}"
            self._meet_user(user)

    def _without_homes(self, text: str, counts: Counter[str]) -> str:
        for home, instead in self._homes.items():
            if home in text:
                pattern = re.compile(rf"{re.escape(home)}(?![\w.-])")
                text, number = pattern.subn(instead, text)
                counts["home folder"] += number
        if "/home/" in text or "/Users/" in text:
            text = _HOME.sub(lambda m: self._home(m, counts), text)
        return text

    def _home(self, found: re.Match[str], counts: Counter[str]) -> str:
        user = found["user"]
        if not _is_name(user):
            return found[0]
        self._meet_user(user)
        counts["home folder"] += 1
        return f"/home/{self._names.of('user', user)}"

    def _email(self, found: re.Match[str], counts: Counter[str]) -> str:
        user, _, host = found[0].partition("@")
        if user == "git" or _PUBLIC.search(host):
            return found[0]
        return self._named("mail", found[0], "mail address", counts)

    def _url_host(self, found: re.Match[str], counts: Counter[str]) -> str:
        host = found["host"].rstrip(".-")
        if _PUBLIC.search(host) or ADDRESS.fullmatch(host) or not _is_name(host):
            return found[0]
        self._meet_host(host)
        user, colon, password = (found["user"] or "").partition(":")
        if user and _is_name(user) and "[" not in user:
            user = self._named("user", user, "user name", counts)
        user = f"{user}{colon}{password}@" if found["user"] else ""
        return user + self._host(host, counts) + found["host"][len(host) :]

    def _host(self, host: str, counts: Counter[str]) -> str:
        return self._named("host", host.partition(".")[0], "host name", counts)

    def _named(self, kind: str, name: str, counted: str, counts: Counter[str]) -> str:
        counts[counted] += 1
        return self._names.of(kind, name)


@lru_cache(_MOST_NAMES)
def _pattern(edges: str, name: str) -> re.Pattern[str]:
    return re.compile(edges.format(re.escape(name)))


def _is_name(name: str) -> bool:
    """Return whether `name` may identify a person or place: no common account, no pseudonym."""
    return (
        len(name) > 1
        and name.lower() not in _COMMON_NAMES
        and not name.isdecimal()
        and not Pseudonyms.is_one(name)
    )
