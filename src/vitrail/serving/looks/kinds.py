"""The questions that can be asked; the web server knows them too, and loads nothing for it."""

BATCHED = ("predictions", "embeddings")
"""Computed for many images at a time."""
SINGLE = ("inspections", "attention", "occlusions")
"""About one image, each for itself."""
FIXED = ("positions", "filters")
"""About the network alone."""
PARTS = {"seen": None, "rollout": "rollout", "maps": "attention", "lens": "lens", "distance": "distance"}
"""Of an inspection; for each what the network must be able to do."""
