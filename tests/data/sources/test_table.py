"""A CSV of paths and labels: what is read, and every way it can be wrong, with its line."""

import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitrail.data.decoding.decode import decode, pixels
from vitrail.data.sources.files import Files
from vitrail.data.sources.table import open_table
from vitrail.errors import DataError, Notice


def table(folder: Path, text: str | bytes, name: str = "images.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(source: Files) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (source.paths[index], tuple(source.classes[number] for number in source.labels.classes_of(index)))
        for index in range(len(source))
    ]


def refusal(path: Path, split: str = "train") -> str:
    with pytest.raises(DataError) as caught:
        open_table(path, split)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message) < 500
    return message.removeprefix(str(path))


def test_rows_keep_their_order_and_images_are_read_beside_the_file(tmp_path):
    (tmp_path / "photos").mkdir()
    for name, value in (("b.png", 10), ("a.png", 200)):
        Image.new("L", (3, 2), value).save(tmp_path / "photos" / name)
    source = open_table(table(tmp_path, "path,label\nphotos/b.png,dog\nphotos/a.png,cat\n"))
    assert source.classes == ("cat", "dog")
    assert rows(source) == [("photos/b.png", ("dog",)), ("photos/a.png", ("cat",))]
    assert not source.labels.is_multi
    assert pixels(decode(source.read(0), "L")).tolist() == np.full((2, 3, 1), 10).tolist()
    assert source.where(1) == str(tmp_path / "photos" / "a.png")
    assert (source.name, source.split) == (str(tmp_path / "images.csv"), "train")


def test_an_absolute_path_is_taken_as_it_is(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "x.jpg").write_bytes(b"content")
    (tmp_path / "near").mkdir()
    source = open_table(table(tmp_path / "near", f"path,label\n{tmp_path}/far/x.jpg,a\n"))
    assert source.read(0) == b"content"
    assert open_table(table(tmp_path / "near", "path,label\n../far/x.jpg,a\n")).read(0) == b"content"


@pytest.mark.parametrize("mark", [",", "\t", ";"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_separators_line_ends_and_bom(tmp_path, mark, end, bom):
    lines = [["Path", " Label "], ["a b.jpg", "cat"], [], ["c.jpg", " dog "], []]
    text = end.join(mark.join(line) for line in lines).encode()
    assert rows(open_table(table(tmp_path, bom + text))) == [("a b.jpg", ("cat",)), ("c.jpg", ("dog",))]


def test_quotes_hold_separators_and_line_ends(tmp_path):
    text = 'label,extra,path\n"cat, big",1,"a,1.jpg"\n"x\ny",2,"say ""hi"".jpg"\n,3,b.jpg\n'
    assert "line 5: a label is empty" in refusal(table(tmp_path, text))
    source = open_table(table(tmp_path, text.removesuffix(",3,b.jpg\n")))
    assert rows(source) == [("a,1.jpg", ("cat, big",)), ('say "hi".jpg', ("x\ny",))]


def test_classes_are_numbered_by_the_training_rows_in_every_split(tmp_path):
    path = table(
        tmp_path,
        "path,label,split\n1,10,train\n2,9,Training\n3,10,val\n4,100,train\n5,9,validation\n6,9,dev\n7,100,test\n",
    )
    train, val, test = (open_table(path, split) for split in ("train", "val", "test"))
    assert train.classes == val.classes == test.classes == ("9", "10", "100")
    assert [train.labels.values.tolist(), val.labels.values.tolist()] == [[1, 0, 2], [1, 0, 0]]
    assert rows(test) == [("7", ("100",))]
    assert open_table(path, "validation").split == "val"


def test_a_file_of_test_rows_only_has_its_own_classes(tmp_path):
    path = table(tmp_path, "path,label,split\n1,b,test\n2,a,val\n")
    assert open_table(path, "test").classes == ("a", "b")
    assert "there is no 'train' part; it has test, val. Ask for 'test'." in refusal(path)


def test_a_class_that_training_does_not_know(tmp_path):
    path = table(tmp_path, "path,label,split\n1,cat,train\n2,cat,val\n3,fox,val\n")
    for split in ("train", "val"):
        assert ", line 4: the class 'fox' is in 'val' but not in 'train'" in refusal(path, split)


def test_without_a_column_all_rows_are_training(tmp_path):
    path = table(tmp_path, "path,label\n1,cat\n")
    assert "there is no 'val' part; it has train. Take a part that is held out" in refusal(path, "val")


def test_several_labels_a_row(tmp_path):
    source = open_table(table(tmp_path, "path,labels\n1,cat|dog\n2,\n3, dog | dog \n4,bird\n"))
    assert source.labels.is_multi
    assert source.classes == ("bird", "cat", "dog")
    assert [row for _, row in rows(source)] == [("cat", "dog"), (), ("dog",), ("bird",)]
    assert source.labels.targets(np.array([0, 1])).tolist() == [[0, 1, 1], [0, 0, 0]]
    assert ", line 2: a label is empty" in refusal(table(tmp_path, "path,labels\n1,cat||dog\n"))


def test_class_names_are_nfc_and_paths_stay_as_written(tmp_path):
    name = "고양이"
    other = unicodedata.normalize("NFD", name)
    source = open_table(table(tmp_path, f"path,label\n{other}.jpg,{other}\n{name}.jpg,{name}\n"))
    assert source.classes == (name,)
    assert list(source.paths) == [f"{other}.jpg", f"{name}.jpg"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", ", line 1: the file is empty; wanted a first line that names the columns"),
        (b"\xef\xbb\xbf\n  \n", ", line 1: the file is empty"),
        (b"path,label\n", ", line 1: there are no rows below the names of the columns"),
        (b"a.jpg,cat\n", ", line 1: there is no column 'path'; the columns are 'a.jpg', 'cat'"),
        (b"\npath,class\na,b\n", ", line 2: there is no column 'label'; the columns are 'path', 'class'"),
        (b"path,label,labels\na,b,c\n", ", line 1: the columns are 'path', 'label', 'labels'; wanted each once"),
        (b"path,label,Label\na,b,c\n", ", line 1: the columns are 'path', 'label', 'label'; wanted each once"),
        (b"path,label\na,cat\nb\n", ", line 3: the row has 1 values; wanted 2."),
        (b"path,label\na,cat,big\n", ", line 2: the row has 3 values; wanted 2. Put quotes around"),
        (b"path,label\na,cat\n\nb,\n", ", line 4: a label is empty"),
        (b"path,label\n,cat\n", ", line 2: the path is empty"),
        (b"path,label\na,cat\nb,\xe9t\xe9\n", ", line 3: the byte 0xe9 is not UTF-8; wanted text in UTF-8. Save it as"),
        (b"path,label\na,c\0at\n", ", line 2: there are NUL bytes"),
        ("path,label\na,cat\n".encode("utf-16"), ", line 1: "),
        (
            b"path,label,split\na,cat,train\nb,cat,later\n",
            ", line 3: the split is 'later'; wanted one of train, val, test",
        ),
        (b"path,label,split\na,cat,\n", ", line 2: the split is ''"),
        (b'path,label\na,"cat\nb,dog\n', ", line 2: the row cannot be read (unexpected end of data)"),
        (b'path,label\na,"c"at\n', ", line 2: the row cannot be read"),
        (b"path,label\na.jpg,cat\nb.jpg,dog\n./a.jpg,dog\n", ", line 4: './a.jpg' is 'dog' here and 'cat' in line 2"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, message):
    assert refusal(table(tmp_path, text)).startswith(message)


def test_a_quote_that_is_never_closed_in_a_long_file(tmp_path):
    text = 'path,label\n"a,cat\n' + "b,dog\n" * 50_000
    assert refusal(table(tmp_path, text)).startswith(", line 2: the row cannot be read (field larger than")


def test_labels_of_thousands_of_digits(tmp_path):
    assert open_table(table(tmp_path, f"path,label\na,{'9' * 5000}\nb,2\n")).classes == ("2", "9" * 5000)


def test_the_same_image_in_two_splits_is_told(tmp_path):
    path = table(tmp_path, "path,label,split\na,cat,train\nb,dog,train\nx/../a,dog,test\nb,dog,test\nc,cat,val\n")
    for split in ("train", "test"):
        with pytest.warns(Notice) as told:
            source = open_table(path, split)
        assert len(source) == 2
        assert [str(one.message) for one in told] == list(source.notes)
        assert [note.partition(": ")[2] for note in source.notes] == [
            "1 rows repeat an image of another split with another label.",
            "1 rows repeat an image of another split.",
        ]
    assert open_table(path, "val").notes == ()


def test_a_row_that_repeats_is_kept_and_told(tmp_path):
    path = table(tmp_path, "path,label\na,cat\nb,dog\nx/../a,cat\n")
    with pytest.warns(Notice, match="1 rows repeat an image; each counts again"):
        source = open_table(path)
    assert len(source) == 3
    assert len(source.notes) == 1


def test_a_file_that_cannot_be_read(tmp_path):
    assert "the file could not be read (No such file or directory)" in refusal(tmp_path / "none.csv")
    assert "the file could not be read (Is a directory)" in refusal(tmp_path)


def test_a_missing_image_is_named_when_it_is_read(tmp_path):
    source = open_table(table(tmp_path, "path,label\ngone.jpg,cat\n"))
    with pytest.raises(DataError, match=r"gone\.jpg: the file could not be read \(No such file or directory\)"):
        source.read(0)


def test_digest_and_pickling(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"123")
    path = table(tmp_path, "path,label\na.jpg,cat\nb.jpg,dog\n")
    source = open_table(path)
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert again.read(0) == b"123"
    assert again.digest() == source.digest() == open_table(path).digest()
    assert open_table(table(tmp_path, "path,label\na.jpg,dog\nb.jpg,cat\n")).digest() != source.digest()
    assert open_table(table(tmp_path, "path,label\na.jpg,cat\nb.jpg,dogs\n")).digest() != source.digest()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jpg", "images.csv"]


def test_the_digest_sees_a_changed_file(tmp_path):
    path = table(tmp_path, "path,label\na.jpg,cat\n")
    (tmp_path / "a.jpg").write_bytes(b"123")
    before = open_table(path).digest()
    (tmp_path / "a.jpg").write_bytes(b"1234")
    assert open_table(path).digest() != before
