"""Noisy Student (Xie et al., 2020): a teacher labels images that nobody did, a noised student learns from all."""
