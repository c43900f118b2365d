"""One of several processes of a command: `python -m vitrail.cli.work PLACE`; the first of them speaks."""

import json
import sys
from pathlib import Path

from vitrail.cli.main import guarded


def main(place: Path) -> int:
    """Carry out what `place/ask.json` says, as the command that wrote it would."""

    def do() -> None:
        from vitrail.cli.asking import told_once
        from vitrail.cli.main import verb_module
        from vitrail.experiments.ask import from_ask_json
        from vitrail.experiments.perform import perform

        ask = from_ask_json(json.loads((place / "ask.json").read_text(encoding="utf-8")))
        with told_once():
            perform(ask, verb_module(ask.verb).AUDIENCE())

    return guarded(do)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
