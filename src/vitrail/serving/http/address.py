"""The address of a server: listening at it, writing it, and what is wrong with it."""

import errno
import ipaddress
import socket

from vitrail.config.serve import ServeConfig
from vitrail.errors import UsageError, setting

_BACKLOG = 1024
_FIRST_FREE_PORT = 1024


def listen(config: ServeConfig) -> socket.socket:
    """A socket that listens; what stands against it is one sentence."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"the host {config.host!r} is not known ({reason})", wanted="an address of this computer"
        ) from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise _explained(error, config) from None
    return listening


def page_url(listening: socket.socket) -> str:
    """Where a browser on this computer finds the page."""
    host, port = listening.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _explained(error: OSError, config: ServeConfig) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        return UsageError(
            f"port {config.port} is taken by another program",
            fix=f"Choose another, such as {setting('port', config.port + 1 if config.port < 65_535 else 8265)}, "
            f"or {setting('port', 0)} for any that is free.",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return UsageError(
            f"port {config.port} is not open to you",
            wanted=f"one from {_FIRST_FREE_PORT} up, with a reverse proxy before it for lower ones",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return UsageError(f"{config.host} is no address of this computer", wanted="one that it has, or 0.0.0.0 for all")
    return UsageError(f"{config.host} port {config.port} cannot be listened at ({error.strerror})")
