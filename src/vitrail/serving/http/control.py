"""Between the supervisor and its children: lines of JSON over a socket pair; its end means that the other is gone."""

import asyncio
import json
import socket
from typing import Any

# A line tells of the model, with all its class names.
_LONGEST = 64 * 2**20


class Control:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, end: socket.socket) -> "Control":
        """Take an end into the running loop."""
        return cls(*await asyncio.open_connection(sock=end, limit=_LONGEST))

    def tell(self, **record: Any) -> None:
        """Send a record; one who is gone does not hear it."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(record).encode() + b"\n")

    async def hear(self) -> dict[str, Any] | None:
        """The next record, or None when the other is gone."""
        try:
            line = await self._reader.readline()
        except (OSError, ValueError):
            return None
        return json.loads(line) if line.endswith(b"\n") else None

    async def told(self) -> None:
        """Wait until all that was told is on its way."""
        try:
            await self._writer.drain()
        except OSError:
            return

    def close(self) -> None:
        """End it."""
        self._writer.close()
