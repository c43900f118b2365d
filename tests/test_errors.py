import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.config.spelling import KEYWORDS, OPTIONS
from vitrail.errors import (
    DataError,
    DiskError,
    Notice,
    UsageError,
    VitrailError,
    also,
    choose,
    command,
    marked,
    notice,
    plain,
    setting,
    spelled,
)

POSITIONS = ["learned_1d", "learned_2d", "sincos_2d"]


def message_of(name: object, options: list[str], kind: str = "position") -> str:
    with pytest.raises(UsageError) as caught:
        choose(kind, name, options)
    return str(caught.value)


def test_a_message_says_where_what_came_what_was_wanted_and_the_fix():
    error = VitrailError("found 3 values", wanted="2", where="config.json", fix="Remove one")
    assert str(error) == "config.json: found 3 values; wanted 2. Remove one."


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "it broke."),
        ({"wanted": "peace"}, "it broke; wanted peace."),
        ({"where": "here"}, "here: it broke."),
        ({"fix": "Mend it"}, "it broke. Mend it."),
        ({"where": "here", "fix": "Mend it"}, "here: it broke. Mend it."),
    ],
)
def test_parts_that_are_left_out_leave_no_trace(parts: dict[str, str], message: str):
    assert str(VitrailError("it broke", **parts)) == message


@pytest.mark.parametrize("end", [".", "?", "!"])
def test_a_finished_sentence_gets_no_second_stop(end: str):
    assert str(VitrailError("came.", fix=f"Really{end}")) == f"came. Really{end}"


def test_a_finished_problem_can_still_be_followed_by_what_was_wanted():
    assert str(VitrailError("it broke.", wanted="peace")) == "it broke; wanted peace."


def test_the_parts_stay_readable_for_programs():
    error = DataError("came", wanted="wanted", where="where", fix="fix")
    assert (error.came, error.wanted, error.where, error.fix) == ("came", "wanted", "where", "fix")


@pytest.mark.parametrize(("kind", "code"), [(VitrailError, 2), (UsageError, 2), (DataError, 3), (DiskError, 5)])
def test_exit_codes(kind: type[VitrailError], code: int):
    error = kind("came")
    assert error.exit_code == code
    assert isinstance(error, VitrailError)


def test_a_known_name_is_returned():
    assert choose("position", "sincos_2d", iter(POSITIONS)) == "sincos_2d"


def test_the_nearest_name_is_suggested():
    options = ["learned_2d", "sincos_2d"]
    assert message_of("learned2d", options) == "Unknown position 'learned2d'. Did you mean 'learned_2d'?"


def test_only_the_nearest_of_several_near_names_is_suggested():
    assert message_of("learned2d", POSITIONS) == "Unknown position 'learned2d'. Did you mean 'learned_2d'?"
    assert message_of("learned1d", POSITIONS) == "Unknown position 'learned1d'. Did you mean 'learned_1d'?"


def test_capital_letters_do_not_hide_the_nearest_name():
    assert message_of("VIT-B16", ["vit-b16"], "model") == "Unknown model 'VIT-B16'. Did you mean 'vit-b16'?"


def test_all_names_are_listed_when_none_is_near():
    message = message_of("xyz", POSITIONS)
    assert message == "Unknown position 'xyz'. Choose from learned_1d, learned_2d, sincos_2d."


@pytest.mark.parametrize("name", [None, 7, 1.5, True, ["token"], ("token",), {"token": 1}])
def test_a_name_that_is_no_string_is_refused_and_shown(name: object):
    assert message_of(name, ["token", "mean"], "pool").startswith(f"Unknown pool {name!r}. ")


@given(st.text(), st.lists(st.text(min_size=1), min_size=1))
def test_choose_returns_exactly_the_names_there_are(name: str, options: list[str]):
    if name in options:
        assert choose("name", name, options) == name
    else:
        assert repr(name) in message_of(name, options, "name")


def test_a_notice_is_a_warning_at_the_place_of_the_caller():
    def loads_something() -> None:
        notice("positions were resampled")

    with pytest.warns(Notice, match=r"^positions were resampled$") as caught:
        loads_something()
    assert [warning.filename for warning in caught] == [__file__]


def sent(what: Any) -> Any:
    return pickle.loads(pickle.dumps(what))  # noqa: S301 (our own)


class Moved(VitrailError):
    def __init__(self, was: int, *, fix: str) -> None:
        super().__init__(f"it is {was + 1} now", fix=fix)
        self.was = was


def test_a_setting_is_told_by_its_name_where_there_is_no_edge():
    assert plain(f"Use {setting('device', 'cpu')} or {setting('optim.lr')}.") == "Use device=cpu or optim.lr."
    assert plain(command("train", resume="runs/my x")) == "vitrail train --resume 'runs/my x'"


def test_marks_survive_being_joined_and_hold_whatever_a_value_is():
    value = 'a "name",\nwith \U0010fff0 and \U0010fff1 and \udcff'
    text = "; ".join([f"{setting('one', value)}", f"{setting('two', (1, None, Path('x')))}"])
    assert plain(text) == f"one={value}; two=[1, None, 'x']"


@pytest.mark.parametrize(
    "text",
    [
        "\U0010fff0",
        "\U0010fff1",
        "\U0010fff0x\U0010fff1",
        "\U0010fff0[]\U0010fff1",
        '\U0010fff0["setting", 1]\U0010fff1',
    ],
)
def test_what_is_no_mark_of_ours_stays(text: str):
    assert plain(text) == text
    assert str(VitrailError(text)) == f"{text}."


@given(st.text())
def test_text_without_marks_stays(text: str):
    assert plain(text) == text


def test_a_command_can_get_more_options():
    longer = also(command("train", resume="x"), micro_batch=4)
    assert spelled(longer, OPTIONS) == "vitrail train --resume x --micro-batch 4"
    assert spelled(longer, KEYWORDS) == "vitrail.train(resume='x', micro_batch=4)"
    assert also("vitrail train --resume x", micro_batch=4) == "vitrail train --resume x --micro-batch 4"


def test_an_error_is_written_as_its_reader_writes():
    error = UsageError("no GPU", wanted=setting("data.skip_bad", True), fix=f"Use {setting('device', 'cpu')}")
    assert str(error) == "no GPU; wanted data.skip_bad=True. Use device=cpu."
    error.spell(OPTIONS)
    assert str(error) == "no GPU; wanted --skip-bad. Use --device cpu."
    error.spell(KEYWORDS)
    assert str(error) == "no GPU; wanted skip_bad=True. Use device='cpu'."


def test_an_error_within_another_is_written_as_its_reader_writes():
    inner = UsageError("no GPU", fix=f"Use {setting('device', 'cpu')}")
    outer = DataError(f"It cannot be opened ({marked(inner)})")
    outer.spell(OPTIONS)
    assert str(outer) == "It cannot be opened (no GPU. Use --device cpu.)."
    assert marked(ValueError("seven")) == "seven"


@pytest.mark.parametrize("copied", [sent, copy.copy, copy.deepcopy])
def test_a_copy_of_an_error_is_the_same(copied: Callable[[VitrailError], VitrailError]):
    error = Moved(3, fix=f"Use {setting('device', 'cpu')}")
    error.add_note("seen")
    again = copied(error)
    assert type(again) is Moved
    assert (str(again), vars(again)) == (str(error), vars(error))
    again.spell(OPTIONS)
    assert (str(again), str(error)) == ("it is 4 now. Use --device cpu.", "it is 4 now. Use device=cpu.")
    assert str(copied(again)) == str(again)


def test_a_notice_is_written_as_its_reader_writes():
    with pytest.warns(Notice, match="Try device=cpu") as caught:
        notice(f"Try {setting('device', 'cpu')}.")
    told = sent(caught[0].message)
    assert isinstance(told, Notice)
    assert (str(told), told.spelled(OPTIONS)) == ("Try device=cpu.", "Try --device cpu.")
