"""From sources to batches on a device."""
