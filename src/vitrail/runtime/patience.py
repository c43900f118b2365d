"""Errors of a disk that may pass, as those of a network drive do, and how long they are waited for."""

import errno

PATIENCE = 0.2
"""Seconds before what failed is tried again."""
_PASSING = {
    getattr(errno, name)
    for name in (
        *("EIO", "ESTALE", "EAGAIN", "EINTR", "ETIMEDOUT", "EREMOTEIO", "ENOTCONN", "ECONNRESET", "ECONNABORTED"),
        *("EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET", "ESHUTDOWN"),
    )
    if hasattr(errno, name)
}


def may_pass(error: OSError) -> bool:
    """Whether an error says nothing of the file, but of the way to it."""
    return error.errno in _PASSING
