"""What the worker answers, as plain functions over a model and an image: no processes, no HTTP."""
