"""What a server is told: the model, the address, and every limit."""

import ipaddress
from dataclasses import dataclass

from vitrail.config.checks import pair, positive
from vitrail.errors import UsageError

_HIGHEST_PORT = 65_535
_LONGEST = 86_400
_SHORTEST_TOKEN = 16


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """A model, where it is served, and the limits on what may come."""

    source: str
    """A run or model folder, a file of any known layout, hf-hub:OWNER/NAME, or a file of `vitrail export`."""
    host: str = "127.0.0.1"
    """The address to listen at; any but this computer's own needs a token."""
    port: int = 8265
    """The port; 0 takes a free one."""
    token: str | None = None
    """What callers have to send as `Authorization: Bearer TOKEN`; better in VITRAIL_TOKEN, which others cannot see."""
    allow_host: tuple[str, ...] = ()
    """Further names by which callers may address the server, such as that of a reverse proxy."""
    backend: str = "auto"
    """torch, compiled, onnx or openvino; auto takes the fastest that is at hand, all give the same answers."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    image_size: int | tuple[int, int] | None = None
    """Pixels per side, or height and width, if not the model's own."""
    preprocessing: str | None = None
    """google, augreg or imagenet: how the images of the model were prepared, if its file does not say."""
    classes: str | None = None
    """A file with the class names of the model, one per line, if it came without; or imagenet."""
    batch_size: int = 8
    """Most images that are computed together."""
    batch_wait: float = 0.003
    """Seconds that the first image of a batch waits for others."""
    queue_seconds: float = 1.0
    """Seconds of work that may wait; who comes later is told to come again."""
    deadline: float = 5.0
    """Seconds after which an image that is still waiting is given up."""
    body_seconds: float = 10.0
    """Seconds in which an upload has to arrive."""
    max_bytes: int = 20 * 2**20
    """Largest upload."""
    max_pixels: int = 50_000_000
    """Largest width times height of an image, read from its header."""
    drain: float = 3.0
    """Seconds that open connections are still answered when the server ends or is replaced."""
    wedged: float = 30.0
    """Seconds on one piece of work after which the model's process is started anew."""

    def __post_init__(self) -> None:
        if not self.source:
            raise UsageError("there is no model", wanted="vitrail serve MODEL")
        if not isinstance(self.port, int) or not 0 <= self.port <= _HIGHEST_PORT:
            raise UsageError(f"port is {self.port!r}", wanted=f"a whole number from 0 to {_HIGHEST_PORT:,}")
        if not self.host or self.host != self.host.strip():
            raise UsageError(f"host is {self.host!r}", wanted="an address such as 127.0.0.1, or a name")
        if self.image_size is not None:
            pair(self.image_size, "image_size")
        positive("batch_size", self.batch_size, at_most=4096)
        positive("max_bytes", self.max_bytes, at_most=2**31)
        positive("max_pixels", self.max_pixels, at_most=2**40)
        for name in ("queue_seconds", "deadline", "body_seconds", "wedged"):
            _seconds(name, getattr(self, name), at_least=0.001)
        for name in ("batch_wait", "drain"):
            _seconds(name, getattr(self, name), at_least=0)


def ensure_token(config: ServeConfig) -> None:
    """Refuse a token that is easily guessed, and other computers without any."""
    if config.token is not None and (len(config.token) < _SHORTEST_TOKEN or not _is_plain(config.token)):
        raise UsageError(
            f"the token has {len(config.token)} characters"
            if _is_plain(config.token)
            else "the token has a space, a control character or a letter beyond ASCII",
            wanted=f"at least {_SHORTEST_TOKEN} plain ones",
            fix=_MAKE_TOKEN,
        )
    if config.token is None and not is_loopback(config.host):
        raise UsageError(
            f"host is {config.host} and there is no token",
            wanted="a token, because other computers could then use this server",
            fix=_MAKE_TOKEN,
        )


def is_loopback(host: str) -> bool:
    """Whether only programs on this computer can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_MAKE_TOKEN = (
    "Make one with `export VITRAIL_TOKEN=$(python -c 'import secrets; print(secrets.token_urlsafe(32))')` "
    "and start again."
)


def _is_plain(token: str) -> bool:
    return all("!" <= letter <= "~" for letter in token)


def _seconds(name: str, value: float, at_least: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not at_least <= value <= _LONGEST:
        few = "more than 0" if at_least else "from 0"
        raise UsageError(f"{name} is {value!r}", wanted=f"seconds, {few} to {_LONGEST:,}")
