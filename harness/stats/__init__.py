"""Intervals, exact tests, and the verdicts made from them. Pure."""
