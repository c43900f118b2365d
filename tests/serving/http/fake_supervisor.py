"""`vitrail serve` whose server processes have an engine without a model."""

import functools
import sys

from vitrail.cli import main
from vitrail.serving.http import supervisor

if __name__ == "__main__":
    supervisor.Supervisor = functools.partial(  # type: ignore[misc, assignment]
        supervisor.Supervisor, module="tests.serving.http.fake_server"
    )
    sys.exit(main(["serve", *sys.argv[1:]]))
