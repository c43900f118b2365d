"""Hyper-parameters as rows, the paper's tables first, and what they expand to."""

from vitrail.recipes.expand import RECIPES, recipe, recipe_title
from vitrail.recipes.expanded import Recipe
from vitrail.recipes.peer import with_peer
from vitrail.recipes.rows import AugRegRow, FinetuneRow, MaskedRow, PretrainRow, Row, RuleRow, Score, SmallRow
from vitrail.recipes.rules import folder_recipe, hyperrule_recipe, masked_recipe

__all__ = [
    "RECIPES",
    "AugRegRow",
    "FinetuneRow",
    "MaskedRow",
    "PretrainRow",
    "Recipe",
    "Row",
    "RuleRow",
    "Score",
    "SmallRow",
    "folder_recipe",
    "hyperrule_recipe",
    "masked_recipe",
    "recipe",
    "recipe_title",
    "with_peer",
]
