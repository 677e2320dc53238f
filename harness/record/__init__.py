"""Record of a run and its evidence: the results folder, and what was captured of source and
environment.
"""
