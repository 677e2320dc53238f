"""Mutants of the judging code, and whether the tests kill them: `nox -s mutants`."""
