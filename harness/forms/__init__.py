"""Ground floor: one of each thing that every other room needs, from strict JSON and digests to
closed models.

It stands on nothing of ours, so that the libraries that are used alone, the hub and the tokenizer,
may stand on it. Modules that say "Standard library only" are for ranks and for the environments of
arms, where nothing else may be.
"""
