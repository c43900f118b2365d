"""The whole network compiles without a graph break, in train and eval mode, for every key, head and position.

It runs in a process of its own, because the shape checks that other tests switch on are not part of the product.
"""

import json
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import dataclasses, json, sys, torch
from vitrail.config import BitConfig, ResNetConfig
from vitrail.models import build
from vitrail.zoo import ZOO

def toy(config, changes):
    if isinstance(config, BitConfig):
        return dataclasses.replace(config, blocks=(1, 1, 1, 1), width=32, num_classes=5, image_size=(32, 32))
    if isinstance(config.backbone, ResNetConfig):
        backbone = dataclasses.replace(config.backbone, blocks=(1,) * len(config.backbone.blocks), width=32)
        config = dataclasses.replace(config, backbone=backbone)
    small = {"depth": 2, "width": config.num_heads * 8, "mlp_width": 16, "num_classes": 5, "pre_logits": 8}
    config = dataclasses.replace(config, **small, dropout=0.1, stochastic_depth=0.1, **changes)
    height, width = config.pixels_per_patch
    return dataclasses.replace(config, image_size=(2 * height, 2 * width))

backend = sys.argv[1]
for key, changes in json.loads(sys.argv[2]):
    torch._dynamo.reset()
    torch.manual_seed(0)
    config = toy(ZOO[key].config, changes)
    model = build(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    images = torch.randn(2, config.channels, *config.image_size)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    with torch.no_grad():
        difference = (compiled.eval()(images) - model(images)).abs().max().item()
    compiled.train()(images).sum().backward()
    trained = all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    print(json.dumps({"case": [key, changes], "difference": difference, "trained": bool(trained)}), flush=True)
"""


def compiled(backend: str, cases: list[tuple[str, dict]]) -> list[dict]:
    command = [sys.executable, "-c", PROGRAM, backend, json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(cases)
    return rows


def check(rows: list[dict]) -> None:
    for row in rows:
        assert row["trained"], row
        assert row["difference"] < 1e-4, row


@pytest.mark.slow
def test_every_key_compiles_whole_at_toy_depth() -> None:
    from vitrail.zoo import ZOO

    check(compiled("eager", [(key, {}) for key in ZOO]))


@pytest.mark.slow
def test_every_head_and_position_compiles_whole() -> None:
    from vitrail.config.vit import ADDITIVE_POSITIONS, POOLS, POSITION_PLACES, POSITIONS

    heads = [("vit-test", {"pool": pool, "registers": 2}) for pool in POOLS]
    kinds = [("vit-test", {"position": kind}) for kind in POSITIONS]
    places = [
        ("vit-test", {"position": kind, "position_at": place})
        for kind in ADDITIVE_POSITIONS
        for place in POSITION_PLACES
    ]
    check(compiled("eager", heads + kinds + places))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's CPU compiler needs a C++ compiler")
def test_the_default_compiler_gives_the_same_logits() -> None:
    check(compiled("inductor", [("vit-tiny-mnist", {})]))
