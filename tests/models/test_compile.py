"""The whole network compiles without a graph break, in train and eval mode, for every key of the zoo.

It runs in a process of its own, because the shape checks that other tests switch on are not part of the product.
"""

import json
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import dataclasses, json, sys, torch
from vitrail.models import build
from vitrail.zoo import ZOO

backend, keys = sys.argv[1], sys.argv[2].split(",")
for key in keys:
    torch._dynamo.reset()
    torch.manual_seed(0)
    config = dataclasses.replace(
        ZOO[key].config, depth=2, num_classes=5, dropout=0.1, stochastic_depth=0.1, pre_logits=8, image_size=(32, 32),
    )
    model = build(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    images = torch.randn(2, config.channels, *config.image_size)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    with torch.no_grad():
        difference = (compiled.eval()(images) - model(images)).abs().max().item()
    compiled.train()(images).sum().backward()
    trained = all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    print(json.dumps({"key": key, "difference": difference, "trained": bool(trained)}), flush=True)
"""


def compiled(backend: str, keys: list[str]) -> dict[str, dict]:
    command = [sys.executable, "-c", PROGRAM, backend, ",".join(keys)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return {row["key"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_every_key_compiles_whole_at_toy_depth() -> None:
    from vitrail.zoo import ZOO

    rows = compiled("eager", list(ZOO))
    assert set(rows) == set(ZOO)
    assert all(row["trained"] for row in rows.values())
    assert max(row["difference"] for row in rows.values()) < 1e-5


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's CPU compiler needs a C++ compiler")
def test_the_default_compiler_gives_the_same_logits() -> None:
    row = compiled("inductor", ["vit-tiny-mnist"])["vit-tiny-mnist"]
    assert row["trained"]
    assert row["difference"] < 1e-5
