"""The figures that a model can be seen in, by name: values only, so that a wrong name is told at once."""

from typing import Literal, get_args

FigureName = Literal["filters", "positions", "distance", "figure-7", "rollout", "lens", "maps", "occlusion"]
FIGURES: tuple[FigureName, ...] = get_args(FigureName)
WITHOUT_IMAGES: tuple[FigureName, ...] = ("filters", "positions")
"""Those that the weights alone show."""
USUAL: tuple[FigureName, ...] = ("filters", "positions", "distance", "figure-7", "rollout", "lens")
"""What is made when nothing is said: covering takes hundreds of passes per image, and maps are for one image."""
