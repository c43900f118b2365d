"""From pixels of any size to what a network sees."""
