"""Who may ask, from where, and what every answer carries."""

import asyncio

import pytest
from tests.serving.http.fakes import Answer, serving

TOKEN = "a-token-of-some-length"


def ask(method: str, target: str, headers: dict[str, str] | None = None, **options) -> Answer:
    async def run() -> Answer:
        async with serving(**options) as server:
            body = b"image" if method == "POST" else None
            return await server.ask(method, target, body, headers)

    return asyncio.run(run())


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.",
        "",
        "[::2]",
        "127.0.0.1@evil",
        "10.0.0.1",
    ],
)
def test_another_name_is_refused(host) -> None:
    answer = ask("GET", "/v1/model", {"Host": host})
    assert (answer.status, answer.code) == (421, "wrong_host")
    assert "--allow-host" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("authority", "host", "status"),
    [
        ("evil.example", "localhost", 421),
        ("localhost@evil.example", "localhost", 421),
        ("evil.example@localhost", "localhost", 421),
        ("localhost.evil.example:8265", "localhost", 421),
        ("localhost:8265", "localhost", 200),
        ("localhost", "evil.example", 200),
    ],
)
def test_a_host_in_the_target_counts_and_the_header_beside_it_does_not(authority, host, status) -> None:
    assert ask("GET", f"http://{authority}/v1/model", {"Host": host}).status == status


def test_a_page_is_compared_with_the_host_in_the_target() -> None:
    target, headers = "http://localhost/v1/predictions", {"Host": "my.proxy", "Origin": "http://my.proxy"}
    answer = ask("POST", target, headers, allow_host=("my.proxy",))
    assert (answer.status, answer.code) == (403, "cross_site")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8265", "127.0.0.1", "[::1]:1", "my.proxy", "my.proxy:443"])
def test_own_names_are_accepted(host) -> None:
    assert ask("GET", "/v1/model", {"Host": host}, allow_host=("my.proxy",)).status == 200


def test_an_open_address_is_known_by_its_numbers_but_not_by_any_name() -> None:
    options = {"host": "0.0.0.0", "token": TOKEN}
    assert ask("GET", "/healthz", {"Host": "192.168.1.7:8265"}, **options).status == 200
    assert ask("GET", "/healthz", {"Host": "[fe80::1]:8265"}, **options).status == 200
    assert ask("GET", "/healthz", {"Host": "evil.example"}, **options).status == 421


@pytest.mark.parametrize("target", ["/v1/model", "/metrics", "/openapi.json", "/v1/positions", "/nothing"])
@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xff"]
)
def test_without_the_token_nothing_is_told(target, given) -> None:
    answer = ask("GET", target, {} if given is None else {"Authorization": given}, token=TOKEN)
    assert (answer.status, answer.code, answer.headers["www-authenticate"]) == (401, "no_token", "Bearer")


def test_with_the_token_all_is_answered_and_without_it_the_page_and_health() -> None:
    for scheme in ("Bearer", "bearer"):
        assert ask("POST", "/v1/predictions", {"Authorization": f"{scheme} {TOKEN}"}, token=TOKEN).status == 200
    for target in ("/", "/page/app.js", "/healthz", "/readyz"):
        assert ask("GET", target, token=TOKEN).status == 200
    assert ask("POST", "/v1/predictions", token=TOKEN).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Origin": "http://["},
        {"Origin": "127.0.0.1"},
        {"Origin": ""},
    ],
)
def test_a_page_of_another_site_cannot_ask(headers) -> None:
    answer = ask("POST", "/v1/predictions", headers)
    assert (answer.status, answer.code) == (403, "cross_site")


def test_our_own_page_can() -> None:
    async def run() -> None:
        async with serving() as server:
            for origin in (f"http://127.0.0.1:{server.port}", f"https://127.0.0.1:{server.port}"):
                headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
                assert (await server.ask("POST", "/v1/predictions", b"image", headers)).status == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/"), ("GET", "/healthz"), ("GET", "/no"), ("PUT", "/"), ("POST", "/v1/predictions"), ("GET", "/metrics")],
)
def test_every_answer_carries_the_security_headers(method, target) -> None:
    answer = ask(method, target)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["permissions-policy"] == "camera=(self)"
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert "server" not in answer.headers
    assert "date" in answer.headers
    assert len(answer.names) == len(set(answer.names))
