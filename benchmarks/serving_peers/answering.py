"""What LitServe and BentoML are given to serve: an ONNX file of `vitrail export`, its preprocessing, its top five.

Pillow, numpy and onnxruntime alone, as one would write it for either; the file says how images are prepared.
"""

import io
import json
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


class Answering:
    """A loaded file; onnxruntime has as many threads as it takes by itself, as under `vitrail serve`."""

    def __init__(self, path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        record = json.loads(self._session.get_modelmeta().custom_metadata_map["vitrail"])
        self._preprocessing = record["preprocessing"]
        if not self._preprocessing["antialias"]:
            raise SystemExit("the peers' preprocessing is Pillow's: choose a model that was trained with antialias")
        self._size = tuple(record["model"]["image_size"])
        # Images of a batch are decoded side by side, as the server that they are compared with does.
        self._decoders = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def __call__(self, files: Sequence[bytes]) -> list[dict[str, Any]]:
        """The five likeliest classes of each image."""
        images = np.stack(list(self._decoders.map(self._prepared, files)))
        [logits] = self._session.run(["logits"], {"images": images})
        logits = np.asarray(logits)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        return [
            {"top": [{"index": int(one), "probability": float(row[one])} for one in np.argsort(-row)[:5]]}
            for row in shares
        ]

    def _prepared(self, file: bytes) -> np.ndarray:
        with Image.open(io.BytesIO(file)) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        height, width = self._resized_size(image.height, image.width)
        pixels = np.array(image.resize((width, height), _FILTERS[self._preprocessing["interpolation"]]))
        top, left = round((height - self._size[0]) / 2), round((width - self._size[1]) / 2)
        pixels = pixels[top : top + self._size[0], left : left + self._size[1]].astype(np.float32)
        mean, std = (np.array(self._preprocessing[name], dtype=np.float32) for name in ("mean", "std"))
        return np.ascontiguousarray(((pixels / 255 - mean) / std).transpose(2, 0, 1), dtype=np.float32)

    def _resized_size(self, height: int, width: int) -> tuple[int, int]:
        crop = self._preprocessing["crop"]
        if crop is None:
            return self._size[0], self._size[1]
        wanted = [math.floor(side / crop) for side in self._size]
        if wanted[0] * width <= wanted[1] * height:
            return int(wanted[1] * height / width), wanted[1]
        return wanted[0], int(wanted[0] * width / height)
