"""What can go wrong with a model."""


class ModelError(Exception):
    """A model that cannot be made, found or described; the message says what, where and what to do."""
