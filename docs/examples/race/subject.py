"""After the fix: nobody loses."""


def race(context):
    """Entry."""
    context.emit("won")
