"""A bisect: one package of a scenario's environment at version after version, until it is known
between which two of them the answer changes.

Each step is an ordinary signed run of the scenario. Everything else in the environment is held.
"""
