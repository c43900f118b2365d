"""Where what can be computed again is kept."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vitrail.runtime.cache import cache_folder, cache_key

PARTS = st.lists(st.one_of(st.text(), st.integers(), st.none(), st.binary(), st.tuples(st.text(), st.integers())))


def test_the_folder_asked_for_comes_first(monkeypatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", "/fast/disk")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder("packed") == Path("/fast/disk/packed")


def test_the_users_cache_folder_else(monkeypatch) -> None:
    monkeypatch.delenv("VITRAIL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder("packed") == Path("/xdg/vitrail/packed")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder("packed") == Path("/home/somebody/.cache/vitrail/packed")


def test_empty_variables_count_as_unset(monkeypatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder("packed") == Path("/home/somebody/.cache/vitrail/packed")


def test_asking_makes_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    cache_folder("packed")
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_short_and_stays_the_same() -> None:
    """The value is written down: another one would orphan every cache on disk."""
    assert cache_key("folder", 224, ("a", 1)) == "3e130db632569061e867518d984e52b8"
    assert cache_key() != cache_key("")


@given(PARTS, PARTS)
def test_keys_differ_exactly_when_the_parts_do(one, other) -> None:
    assert (cache_key(*one) == cache_key(*other)) == (repr(one) == repr(other))
    assert len(cache_key(*one)) == 32
    assert set(cache_key(*one)) <= set("0123456789abcdef")


def test_parts_do_not_run_together() -> None:
    assert len({cache_key("ab", "c"), cache_key("a", "bc"), cache_key("abc"), cache_key("a", "b", "c")}) == 4
    assert cache_key(1) != cache_key("1")


def test_names_that_are_no_utf_8_have_keys() -> None:
    assert cache_key("\udcff") != cache_key("\udcfe")
