"""What a measurement depends on beside the code: the machine and the versions."""

import importlib.metadata
import platform
from pathlib import Path

import torch
from peers import OURS, PEERS

import vitrail


def describe_machine(device: torch.device) -> str:
    """The accelerator or the processor that was measured."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{_processor()}, {torch.get_num_threads()} threads, {capability}"


def describe_versions(names: list[str]) -> str:
    """Versions of Python, torch, ours and the peers."""
    versions = {"Python": platform.python_version(), "torch": torch.__version__, OURS: vitrail.__version__}
    versions |= {name: _version(PEERS[name].distribution) for name in names}
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
