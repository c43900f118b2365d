"""The paper's tables of hyper-parameters as rows, and what they expand to."""

from vitrail.recipes.expand import RECIPES, Recipe, recipe
from vitrail.recipes.rows import FinetuneRow, PretrainRow, Score

__all__ = ["RECIPES", "FinetuneRow", "PretrainRow", "Recipe", "Score", "recipe"]
