"""The README is true: its commands and its Python run, and its tree lists every source file."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from tests.serving.http.started import started

from vitrail.cli import main
from vitrail.config import Preprocessing, to_json
from vitrail.data.transforms.fit_image import fit_image, normalised

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    """Blocks of code; one behind a comment that says why is not run."""
    runnable = re.sub(r"<!-- not run: .*? -->\n```.*?```", "", text, flags=re.DOTALL)
    return re.findall(rf"```{language}\n(.*?)```", runnable, flags=re.DOTALL)


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A folder that looks like the checkout, so that what the README writes does not land in it."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/data.md",
        pytest.param("docs/training.md", marks=pytest.mark.slow),
        pytest.param("docs/evaluating.md", marks=pytest.mark.slow),
        pytest.param("docs/few-shot.md", marks=pytest.mark.slow),
        pytest.param("docs/baselines.md", marks=pytest.mark.slow),
        pytest.param("docs/predicting.md", marks=pytest.mark.slow),
        pytest.param("docs/exporting.md", marks=pytest.mark.slow),
        pytest.param("docs/reports.md", marks=pytest.mark.slow),
        pytest.param("docs/inspecting.md", marks=pytest.mark.slow),
        pytest.param("docs/vtab.md", marks=pytest.mark.slow),
        pytest.param("docs/transfer.md", marks=pytest.mark.slow),
        pytest.param("docs/self-training.md", marks=pytest.mark.slow),
        pytest.param("docs/scaling.md", marks=pytest.mark.slow),
        pytest.param("docs/larger.md", marks=pytest.mark.slow),
        pytest.param("docs/self-supervision.md", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_the_commands_run(page, checkout, capsys) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [line for block in blocks("console", text) for line in block.splitlines()]
    commands = [line[2:] for line in lines if line.startswith("$ vitrail")]
    assert len(commands) >= 5
    draw_photos(checkout / "photos")
    for command in commands:
        assert main(shlex.split(command, comments=True)[1:]) == 0, command
        assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_the_page_about_serving_is_true(checkout, tmp_path) -> None:
    """What is trained is served, and every request of the page is answered."""
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    lines = [line[2:] for block in blocks("console", text) for line in block.splitlines() if line.startswith("$ ")]
    train, serve, *requests = lines
    assert len(requests) >= 4 and all(line.startswith("curl ") for line in requests)
    draw_photos(checkout / "photos")
    assert main(shlex.split(train)[1:]) == 0
    verb, model = shlex.split(serve)[1:]
    with started(tmp_path, verb, str(checkout / model), "--drain", "0", module="vitrail") as server:
        server.wait_ready()
        for line in requests:
            if shutil.which("curl"):
                words = shlex.split(line.replace(":8265", f":{server.port}"))
                found = subprocess.run([*words, "--silent"], capture_output=True, check=True, timeout=30)
                assert "error" not in json.loads(found.stdout), line
        names: dict = {}
        [program] = blocks("python", text)
        exec(compile(program.replace(":8265", f":{server.port}"), "docs/serving.md", "exec"), names)
        assert {one["label"] for one in names["answer"]["top"]} == {"cat", "dog"}


def draw_photos(folder: Path) -> None:
    """Two classes of noise, six pictures each."""
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            pixels = generator.integers(0, 256, (48, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"^\$ make ([\w-]+)", README, flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_the_python_of_the_page_about_it_runs(checkout, capsys) -> None:
    program = "\n".join(blocks("python", (ROOT / "docs" / "python.md").read_text(encoding="utf-8")))
    names: dict = {}
    exec(compile(program, "docs/python.md", "exec"), names)
    assert names["tuned"].accuracy is not None
    assert [name for name, _ in names["plan"].runs] == ["sweep/lr-0.01", "sweep/lr-0.03", "seed-0"]
    assert capsys.readouterr().out.splitlines()[-1].startswith("40 ")


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_the_python_runs(checkout) -> None:
    program = "\n".join(blocks("python"))
    draw_photos(checkout / "photos")
    assert "load_model" in program
    names: dict = {}
    exec(compile(program, "README.md", "exec"), names)
    assert names["logits"].shape == (2, 10)
    assert names["tokens"].shape == (2, 129, 48)
    assert names["attention"][0].shape == (2, 4, 129, 129)
    assert (checkout / "my-model.npz").exists()
    assert names["tuned"].model.labels == ("cat", "dog")


def test_the_tree_lists_every_room() -> None:
    found = re.search(r"^```\nsrc/vitrail/\n(.*?)```", README, flags=re.DOTALL | re.MULTILINE)
    assert found
    listed, outer = set(), ""
    for line in found[1].splitlines():
        name = line.split()[0]
        outer = outer if line.startswith("    ") else name
        listed.add(name if name == outer else outer + name)
    package = ROOT / "src" / "vitrail"
    rooms = {f"{file.parent.relative_to(package)}/" for file in package.rglob("*/__init__.py")}
    assert listed == {*rooms, "errors.py"}


def script(name: str) -> ModuleType:
    """What writes pages of the documentation."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for it there.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_numbers_in_summaries_are_those_of_the_results() -> None:
    for page, text in script("make_summaries").pages().items():
        assert (ROOT / page).read_text(encoding="utf-8") == text, "run `make summaries`"


@pytest.mark.parametrize("page", ["docs/scaling.md", pytest.param("docs/larger.md", marks=pytest.mark.slow)])
def test_what_a_page_shows_is_what_its_command_prints(page) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert script("make_summaries").shown(page, text) == text, "run `make summaries`"


def test_the_map_lists_every_source_file() -> None:
    make_map = script("make_map")
    page = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    assert page == make_map.render(), "run `make map`"
    package = ROOT / "src" / "vitrail"
    for file in package.rglob("*.py"):
        assert file.name == "__init__.py" or f"- `{file.name}`: " in page


@pytest.mark.parametrize("size", [(408, 204), (309, 206), (414, 207), (701, 495), (333, 500), (97, 31)])
@pytest.mark.parametrize("crop", [0.875, 0.9, 1.0, None])
def test_the_recipe_for_exported_files_prepares_images_as_we_do(size, crop) -> None:
    """Down to the last pixel of odd sizes: what is rounded in another place is another image."""
    text = (ROOT / "docs" / "exporting.md").read_text(encoding="utf-8")
    [program] = [block for block in blocks("python", text) if "how" in block]
    part = program[program.index("size = (width, height)") : program.index("logits, features")]
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    how = Preprocessing(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), interpolation="bicubic", crop=crop)
    names = {"Image": Image, "np": np, "image": image, "height": 224, "width": 224, "how": to_json(how)}
    exec(compile(part, "docs/exporting.md", "exec"), names)
    ours = normalised(fit_image(image, (224, 224), how), how)
    np.testing.assert_allclose(names["pixels"].transpose(2, 0, 1), ours, atol=1e-5)
