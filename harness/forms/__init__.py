"""The ground floor: how the files that people write are read, scenarios, policies and the hub's rules alike.

It stands on nothing of ours, so that what is used alone, the hub, may stand on it.
"""
