"""Fine-tune many: sweeps on held-out training data, and the mean over seeds."""
