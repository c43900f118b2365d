"""The 19 tasks of VTAB-1k as data: where they come from, what their labels are, which images are used."""
