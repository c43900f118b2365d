"""Whether every path from a photo to an answer gives the same one: evaluation, each backend, each exported file."""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine, describe_versions

from vitrail import load_model
from vitrail.data import evaluation_batches
from vitrail.data.sources.loose import open_images
from vitrail.evaluation.classify import classify
from vitrail.evaluation.subject import open_subject
from vitrail.exporting.exported import FORMATS
from vitrail.exporting.write import write_unverified
from vitrail.prediction import Predictor

_CPU = torch.device("cpu")


def reference(source: str, photos: Path, preprocessing: str) -> tuple[list[str], np.ndarray]:
    """What the network gives in torch, float32, for the images that evaluation prepares."""
    subject = open_subject(source, preprocessing=preprocessing)
    images = open_images([photos])
    logits = []
    for batch in evaluation_batches(images, subject.preparation, batch_size=32):
        with torch.inference_mode():
            logits.append(subject.model(batch.images).numpy())
    return [str(images.path(index)) for index in range(len(images))], np.concatenate(logits)


def evaluated(source: str, photos: Path, preprocessing: str) -> np.ndarray:
    """The first guesses of `vitrail evaluate`, which training uses too when it measures."""
    subject = open_subject(source, preprocessing=preprocessing)
    return classify(subject.model, open_images([photos]), subject.preparation, batch_size=7).guesses[:, 0]


def timms(source: str, paths: list[str]) -> np.ndarray:
    """timm's own network, transform and reading of the same file."""
    import timm
    from PIL import Image
    from safetensors.torch import load_file

    network = timm.create_model("vit_tiny_patch16_224.augreg_in21k_ft_in1k").eval()
    network.load_state_dict(load_file(source))
    settings = timm.data.resolve_data_config({}, model=network)
    transform = timm.data.create_transform(**settings, is_training=False)
    with torch.inference_mode():
        return np.concatenate(
            [network(transform(Image.open(path).convert("RGB"))[None]).numpy() for path in paths]  # type: ignore[operator]
        )


def answers(source: str, paths: list[str], preprocessing: str, folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Logits by every way of `vitrail predict`."""
    for backend in ("torch", "compiled", "onnx", "openvino"):
        predictor = Predictor(source, backend=backend, preprocessing=preprocessing, device="cpu")
        yield f"predict, {predictor.backend.name}", predictor.logits(paths)
    model = load_model(source, preprocessing=preprocessing)
    for any_size in (False, True):
        for kind, one in FORMATS.items():
            path = folder / f"{any_size}{one.suffix}"
            write_unverified(model, path, kind, any_size=any_size)
            predictor = Predictor(path, batch_size=7)
            words = ", any size" if any_size else ""
            yield f"predict, exported file for {predictor.backend.name}{words}", predictor.logits(paths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="a timm file of ViT-Ti/16")
    parser.add_argument("photos", type=Path)
    parser.add_argument("--preprocessing", default="augreg")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    paths, expected = reference(options.source, options.photos, options.preprocessing)
    top = expected.argmax(axis=1)
    same = int((evaluated(options.source, options.photos, options.preprocessing) == top).sum())
    rows = [("evaluate, batches of 7", same, None)]
    with tempfile.TemporaryDirectory() as folder:
        found = [("timm, its own network and transform", timms(options.source, paths))]
        for name, logits in [*found, *answers(options.source, paths, options.preprocessing, Path(folder))]:
            rows.append((name, int((logits.argmax(axis=1) == top).sum()), float(np.abs(logits - expected).max())))
            print(rows[-1], flush=True)
    lines = [
        f"| {name} | {same} of {len(paths)} | {'' if apart is None else f'{apart:.1e}'} |" for name, same, apart in rows
    ]
    text = "\n".join(
        [
            "# The same answer by every path",
            "",
            f"- machine: {describe_machine(_CPU)}",
            f"- versions: {describe_versions(['timm'])}",
            f"- {Path(options.source).name}, {len(paths)} photos, beside float32 torch on what evaluation prepares;",
            f"  largest logit {np.abs(expected).max():.1f}",
            "",
            "| path | same first guess | largest logit difference |",
            "|---|---:|---:|",
            *lines,
        ]
    )
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
