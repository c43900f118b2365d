from typing import Any

import pytest

from vitrail.config import ServeConfig, from_json, to_json
from vitrail.config.serve import ensure_token, is_loopback
from vitrail.errors import UsageError

TOKEN = "a-token-of-some-length"


def test_the_defaults_serve_this_computer_only() -> None:
    config = ServeConfig(source="model")
    assert (config.host, config.port, config.token) == ("127.0.0.1", 8265, None)
    assert (config.batch_size, config.batch_wait, config.queue_seconds) == (8, 0.003, 1.0)
    assert (config.max_bytes, config.max_pixels) == (20 * 2**20, 50_000_000)
    ensure_token(config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", ""),
        ("host", ""),
        ("host", " 127.0.0.1"),
        ("port", -1),
        ("port", 65_536),
        ("batch_size", 0),
        ("batch_wait", -0.1),
        ("queue_seconds", 0),
        ("queue_seconds", float("nan")),
        ("deadline", float("inf")),
        ("deadline", True),
        ("body_seconds", -1),
        ("wedged", 0.0),
        ("drain", 1e9),
        ("max_bytes", 0),
        ("max_bytes", 1.5),
        ("max_pixels", -5),
        ("image_size", 0),
        ("image_size", (224, 0)),
    ],
)
def test_values_that_make_no_server_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError):
        ServeConfig(**{"source": "model", name: value})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_this_computer_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    ensure_token(ServeConfig(source="model", host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "127.0.0.1.example.org"])
def test_others_do_and_are_told_how_to_make_one(host: str) -> None:
    with pytest.raises(UsageError, match=r"there is no token.*secrets\.token_urlsafe"):
        ensure_token(ServeConfig(source="model", host=host))
    ensure_token(ServeConfig(source="model", host=host, token=TOKEN))


@pytest.mark.parametrize(
    "token", ["", "short", "with a space in the middle", "비밀번호비밀번호비밀번호비밀", "line\nline-line-line"]
)
def test_a_token_that_is_easily_guessed_or_no_header_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="the token has"):
        ensure_token(ServeConfig(source="model", token=token))


def test_it_travels_as_json() -> None:
    config = ServeConfig(source="모델", image_size=(32, 64), allow_host=("a", "b"), token=TOKEN, queue_seconds=2.0)
    assert from_json(ServeConfig, to_json(config), where="here") == config
