"""`vitrail serve`: a model over HTTP, and the page that shows what it sees."""

import asyncio
import contextlib
import dataclasses
import importlib.util
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from vitrail.cli.terminal import printable, short_count
from vitrail.config.checks import times
from vitrail.config.serve import ServeConfig, ensure_token
from vitrail.errors import UsageError

_NEEDED = ("starlette", "uvicorn", "httptools", "prometheus_client")


@dataclass(frozen=True, kw_only=True)
class Options(ServeConfig):
    """Serve a model over HTTP: predictions, features, attention, and a page that shows what the model sees.

    It answers only programs on this computer, unless --host names another address and a token is set.
    Ctrl-C answers what is under way and ends. SIGHUP restarts, SIGUSR1 reads the model again: no request is lost.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run or model folder, a file of any known layout, hf-hub:OWNER/NAME, or a file of `vitrail export`."""
    access_log: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write a line for every request to standard error."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail serve MODEL ...`."""
    run(tyro.cli(Options, args=list(words), prog="vitrail serve"))


def run(options: Options) -> None:
    """Listen, start the processes, say where they answer, and stay until a signal."""
    from vitrail.serving.http.address import listen, page_url
    from vitrail.serving.http.supervisor import Supervisor

    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} cannot be imported", fix="Install them: pip install 'vitrail[serve]'"
        )
    config = _config(options)
    ensure_token(config)
    listening = listen(config)
    url = page_url(listening)
    logging.basicConfig(level=logging.INFO, format="vitrail: %(message)s", stream=sys.stderr)
    first = "the first time a faster copy is made of it, which can take half a minute"
    print(f"reading {printable(config.source)}; {first}", flush=True)

    def announce(facts: dict[str, Any]) -> None:
        # Whoever started us may have stopped listening to what we say; the server goes on.
        with contextlib.suppress(OSError):
            print("\n".join(greeting(facts, url, has_token=config.token is not None)), flush=True)

    asyncio.run(Supervisor(config, listening, announce, logs_access=options.access_log).run())


def _config(options: Options) -> ServeConfig:
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(ServeConfig)}
    return ServeConfig(**{**values, "token": options.token or os.environ.get("VITRAIL_TOKEN") or None})


def greeting(facts: dict[str, Any], url: str, *, has_token: bool) -> list[str]:
    """What the model is, where it answers, how to ask it, and how to stop."""
    size = f"{short_count(facts['parameters'])} parameters, " if facts.get("parameters") else ""
    classes, asked = f"{facts['num_classes']:,} classes", "v1/predictions"
    if not facts["num_classes"]:
        classes, asked = "no classes", "v1/embeddings"
    ask = "curl -H 'Content-Type: image/jpeg' --data-binary @photo.jpg"
    token = ' -H "Authorization: Bearer $VITRAIL_TOKEN"' if has_token else ""
    return [
        f"serving {printable(facts['name'])}: {printable(facts['network'])}, {size}{classes}, "
        f"images of {times(tuple(facts['image_size']))}, computed by {facts['backend']}",
        "",
        f"  page     {url}",
        f"  ask it   {ask}{token} {shlex.quote(f'{url}{asked}')}",
        f"  stop it  Ctrl-C, or kill {os.getpid()}",
        "",
        f"kill -HUP {os.getpid()} restarts it and kill -USR1 {os.getpid()} reads the model again; no request is lost.",
    ]
