"""ONNX, OpenVINO and torch.export files whose answers were compared with the network they came from."""

from vitrail.exporting.exported import Exported, is_exported, open_exported

__all__ = ["Exported", "is_exported", "open_exported"]
