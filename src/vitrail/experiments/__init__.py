"""What takes many runs: a fine-tuning with its sweep and seeds, the transfer table, VTAB-1k, and self-training."""
