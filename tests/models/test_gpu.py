"""On a CUDA device: the same answers as on the CPU, compiled whole, and no (tokens x tokens) matrix in memory."""

import dataclasses
import subprocess
import sys

import pytest
import torch

import vitrail
from vitrail.models import build
from vitrail.zoo import ZOO

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def randomised(key: str, **changes) -> torch.nn.Module:
    config = dataclasses.replace(ZOO[key].config, num_classes=10, **changes)
    model = build(config).eval()
    torch.nn.init.normal_(model.head.weight, std=0.02)
    return model


@pytest.mark.parametrize("key", ["vit-ti16", "vit-s32", "r26-vit-s32", "r-vit-ti16", "bit-r50x1", "vit-tiny-mnist"])
def test_cuda_logits_equal_the_cpus(key) -> None:
    model = randomised(key)
    images = torch.randn(2, model.config.channels, *model.config.image_size)
    with torch.no_grad():
        wanted = model.double()(images.double())
        found = model.cuda()(images.double().cuda()).cpu()
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", ["vit_token", "bv_tok_learn", "hybrid_r111", "hybrid_stem_only", "bit_r2121x0.5_odd"])
def test_the_originals_fixtures_hold_on_cuda(case, fixtures) -> None:
    import numpy as np

    folder = fixtures / case
    model = vitrail.load_model(folder / "params.npz").cuda()
    images = torch.from_numpy(np.load(folder / "input.npy")).permute(0, 3, 1, 2).cuda()
    torch.backends.cudnn.allow_tf32 = False
    with torch.no_grad():
        found = model(images).cpu().numpy()
    np.testing.assert_allclose(found, np.load(folder / "logits.npy"), rtol=0, atol=5e-5)


PROGRAM = """
import sys, torch
from vitrail.config import BitConfig
from vitrail.models import create_model
from vitrail.zoo import ZOO

for key in sys.argv[1:]:
    shallow = {"depth": 2, "dropout": 0.1, "stochastic_depth": 0.1}
    changes = {"blocks": (1, 1, 1, 1)} if isinstance(ZOO[key].config, BitConfig) else shallow
    model = create_model(key, num_classes=10, **changes).cuda()
    torch.nn.init.normal_(model.head.weight, std=0.02)
    compiled = torch.compile(model, fullgraph=True)
    images = torch.randn(4, 3, 224, 224, device="cuda")
    for training in (False, True):
        compiled.train(training)
        with torch.autocast("cuda", torch.bfloat16), torch.set_grad_enabled(training):
            logits = compiled(images)
        assert logits.isfinite().all()
    logits.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    print(key, "compiled")
"""


def test_compiled_bf16_steps_run_whole() -> None:
    """In a process of its own: the shape checks of the other tests are not part of the product."""
    keys = ["vit-ti16", "r-vit-ti16", "bit-r50x1"]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *keys], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [word for key in keys for word in (key, "compiled")]


def test_a_plain_forward_at_4097_tokens_needs_less_than_one_attention_matrix() -> None:
    model = randomised("vit-ti16", image_size=(1024, 1024)).cuda()
    images = torch.randn(1, 3, 1024, 1024, device="cuda")
    matrix = 3 * 4097**2 * 4

    def peak(run) -> int:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            run()
        return torch.cuda.max_memory_allocated() - before

    plain = peak(lambda: model(images))
    tapped = peak(lambda: model.forward_tapped(images, layers=[11]))
    print(f"\npeak at 4,097 tokens: plain {plain / 1e6:.1f} MB, one layer tapped {tapped / 1e6:.1f} MB")
    assert plain < matrix / 2
    assert tapped > matrix


FAR_BELOW_ZERO = """
import sys, torch
from vitrail.models.attention import attend

def step(q, k, v):
    return attend(q, k, v, None, 0.0).float().square().sum()

run = torch.compile(step) if sys.argv[1] == "compiled" else step
torch.manual_seed(0)
for keys in (64, 192, 320):
    # Query and key point away from each other: every logit is about -4.5 * 4 * 64 / 8 = -144.
    noise = lambda: 0.05 * torch.randn(2, 4, keys, 64, device="cuda")
    q, k, v = ((base + noise()).bfloat16().requires_grad_() for base in (4.5, -4.0, 1.0))
    logits = q.detach().float() @ k.detach().float().transpose(-2, -1) / 8
    assert logits.max() < -90, logits.max()
    run(q, k, v).backward()
    exact = [value.detach().double().requires_grad_() for value in (q, k, v)]
    (torch.softmax(exact[0] @ exact[1].transpose(-2, -1) / 8, -1) @ exact[2]).square().sum().backward()
    for name, came, wanted in zip("qkv", (q, k, v), exact):
        assert came.grad.isfinite().all(), (keys, name)
        error = (came.grad.double() - wanted.grad).abs().max() / exact[2].grad.abs().max()
        assert error < 0.05, (keys, name, float(error))
print("finite")
"""


POOLED = """
import copy, sys, torch
from vitrail.config import VitConfig
from vitrail.models.pooling import AttentionPooling

torch.manual_seed(0)
config = VitConfig(
    width=256, depth=1, num_heads=4, mlp_width=512, patch_size=(4, 4), image_size=(32, 32), num_classes=2, pool="map"
)
for keys in (64, 576):
    pooling = AttentionPooling(config).to(DEVICE)
    with torch.no_grad():
        # Query and keys point away from each other, as above: every logit is about -4.5 * 4 * 64 / 8 = -144.
        pooling.query.weight.mul_(0.01)
        pooling.query.bias.fill_(4.5)
        pooling.key_value.weight.mul_(0.05)
        pooling.key_value.bias[:256] = -4.0
        pooling.key_value.bias[256:] = 1.0
    exact = copy.deepcopy(pooling).double()
    tokens = torch.randn(2, keys, 256, device=DEVICE, requires_grad=True)
    others = tokens.detach().double().requires_grad_()
    q, k = pooling.query(pooling.probe), pooling.key_value(tokens)[..., :256]
    logits = (q * k).unflatten(-1, (4, 64)).sum(-1) / 8
    assert logits.max() < -90, logits.max()
    run = torch.compile(pooling) if sys.argv[1] == "compiled" else pooling
    with torch.autocast(DEVICE, torch.bfloat16):
        pooled = run(tokens)
    pooled.float().square().sum().backward()
    exact(others).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in pooling.parameters()), keys
    assert tokens.grad.isfinite().all(), keys
    error = float((tokens.grad.double() - others.grad).abs().max() / others.grad.abs().max())
    assert error < 0.2, (keys, error)
print("finite")
"""


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("program", [FAR_BELOW_ZERO, POOLED.replace("DEVICE", "'cuda'")], ids=["attention", "pooling"])
def test_gradients_are_finite_where_all_logits_are_below_minus_90(program, how) -> None:
    """So many keys beyond a multiple of 128, where one fused kernel gives NaN (in a process without shape checks)."""
    done = subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["finite"]
