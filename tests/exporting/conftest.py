"""A small network with labels that few formats carry unharmed, exported once to every kind."""

import unicodedata
from pathlib import Path

import pytest
import torch

import vitrail
from vitrail.config import Preprocessing
from vitrail.data import Preparation
from vitrail.exporting.samples import Samples, gather_samples
from vitrail.exporting.write import export_model
from vitrail.models import Classifier

LABELS = (
    "a \"quoted\" 'name'",
    "emoji 🐈‍⬛",
    unicodedata.normalize("NFC", "고양이"),
    unicodedata.normalize("NFD", "고양이"),
    "two\nlines\r\tand more\x00",
    "<script>alert(1)</script>",
    "&amp; &lt; ]]> %s {0} \\n",
    "é ü ß 中文 עברית",
    "",
    " spaces  ",
)
FILES = {"onnx": "model.onnx", "openvino": "model.xml", "torch": "model.pt2"}


def lively(model: Classifier, seed: int = 0) -> Classifier:
    """Weights that make every part matter: heads and tokens begin at zero otherwise."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.1 if parameter.ndim > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    channels = model.config.channels
    model.preprocessing = Preprocessing(mean=(0.5,) * channels, std=(0.5,) * channels, interpolation="bilinear")
    return model.eval()


def prepared_for(model: Classifier) -> tuple[Preparation, Samples]:
    config = model.config
    assert model.preprocessing is not None
    preparation = Preparation(size=config.image_size, preprocessing=model.preprocessing, channels=config.channels)
    return preparation, gather_samples(model, None, labelled=False)


@pytest.fixture(scope="session")
def toy() -> Classifier:
    model = lively(vitrail.create_model("vit-test"))
    model.labels = LABELS
    model.provenance = {"data": "<b>", "licence": "apache-2.0"}
    return model


@pytest.fixture(scope="session")
def exports(toy, tmp_path_factory) -> Path:
    """A folder with the toy in every kind."""
    folder = tmp_path_factory.mktemp("exports")
    for kind, name in FILES.items():
        export_model(toy, folder / name, kind, *prepared_for(toy))
    return folder
