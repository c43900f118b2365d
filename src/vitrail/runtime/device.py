"""Where a run is computed."""

import torch

from vitrail.errors import UsageError, notice, setting


def find_device(name: str = "auto") -> torch.device:
    """The device of a name: cpu, cuda, cuda:1, mps; auto takes a CUDA GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"the device is {name!r}", wanted="auto, cpu, cuda, cuda:1 or mps") from None
    if device.type == "cuda":
        _ensure_cuda(device)
    elif device.type == "mps":
        if not torch.backends.mps.is_available():
            raise UsageError("torch finds no Apple GPU here", fix=f"Use {setting('device', 'cpu')}.")
        notice("Training on Apple GPUs is untested.")
    elif device.type != "cpu":
        raise UsageError(f"the device is {name!r}", wanted="auto, cpu, cuda, cuda:1 or mps")
    return device


def _ensure_cuda(device: torch.device) -> None:
    if not torch.cuda.is_available():
        built = f"torch {torch.__version__} is built for CUDA {torch.version.cuda}" if torch.version.cuda else ""
        reason = built or f"torch {torch.__version__} is built without CUDA"
        fix = f"Use {setting('device', 'cpu')}, or look at nvidia-smi."
        raise UsageError(f"torch finds no CUDA GPU here ({reason})", fix=fix)
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise UsageError(f"there is no GPU number {device.index}", wanted=f"a number below {torch.cuda.device_count()}")
