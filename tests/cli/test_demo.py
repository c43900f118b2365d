import re

import pytest

from vitrail.cli import main


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours, even where a build server asks for them."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def out(capsys) -> str:
    assert main(["demo"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


@pytest.mark.parametrize(
    ("symbol", "shape"),
    [
        ("x", "1 x 1 x 28 x 28"),
        ("x_p E", "1 x 16 x 16"),
        ("(1)  z_0", "1 x 17 x 16"),
        ("(2,3) z_1", "1 x 17 x 16"),
        ("(2,3) z_2", "1 x 17 x 16"),
        ("(4)  y", "1 x 16"),
        ("head(y)", "1 x 10"),
    ],
)
def test_every_equation_has_its_shape(out: str, symbol: str, shape: str):
    assert re.search(rf"^  {re.escape(symbol)} +{shape}  +\S", out, re.MULTILINE)


def test_the_equations_come_in_order(out: str):
    places = [out.index(number) for number in ("(1)", "(2,3) z_1", "(2,3) z_2", "(4)", "head(y)")]
    assert places == sorted(places)


def test_the_network_is_described(out: str):
    assert "2 blocks, width 16, 2 heads, 7x7 patches, 7,850 parameters" in out


def test_the_picture_is_cut_into_patches(out: str):
    rows = re.findall(r"^  ([·▀▄█]{7}(?: [·▀▄█]{7}){3})$", out, re.MULTILINE)
    assert len(rows) == 14
    assert any("█" in row for row in rows)


def test_attention_is_drawn_on_the_grid_of_patches(out: str):
    rows = re.findall(r"^  ([ ░▒▓█]{8})$", out.split("where the class token")[1], re.MULTILINE)
    assert len(rows) == 4
    assert "█" in "".join(rows)


def test_it_says_what_to_do_next(out: str):
    assert "Next: vitrail list models" in out.splitlines()[-1]


def test_it_draws_the_same_every_time(out: str, capsys):
    assert main(["demo"]) == 0
    assert capsys.readouterr().out == out


def test_it_takes_no_arguments():
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "--fast"])
    assert stopped.value.code == 2
