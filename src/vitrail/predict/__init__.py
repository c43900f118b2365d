"""Labelled probabilities and features for images, from any model or exported file."""
