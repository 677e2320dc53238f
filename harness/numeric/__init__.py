"""Distances between numbers: tolerances, what two arrays differ by, and how arrays lie in files."""
