"""`vitrail data`: look at a data set before training, or make a copy that loads faster."""

from vitrail.cli import data_check, data_pack

run = {"check": data_check.run, "pack": data_pack.run}
