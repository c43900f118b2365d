"""Published layouts and our own: read, write, rename, resize positions."""

from vitrail.weights.load import load_model, read_checkpoint
from vitrail.weights.resize import resize_positions
from vitrail.weights.save import LAYOUTS, save_model, write_checkpoint

__all__ = ["LAYOUTS", "load_model", "read_checkpoint", "resize_positions", "save_model", "write_checkpoint"]
