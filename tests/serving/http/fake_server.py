"""The server process with an engine that has no model."""

from tests.serving.http.fakes import FakeEngine

from vitrail.serving.http.server import main

if __name__ == "__main__":
    main(FakeEngine)  # type: ignore[arg-type]
