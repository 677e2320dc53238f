"""A rank that looks whether its chat template came from the hub, and one that makes a prompt
without looking.
"""

import tempfile


def load(context, *, look):
    """Entry: every rank loads the tokenizer; with `look` it notices that the template is gone."""
    from transformers import AutoTokenizer

    # A cache of its own: every rank asks the hub for every file.
    with tempfile.TemporaryDirectory() as cache:
        context.emit("load.begin")
        tokenizer = AutoTokenizer.from_pretrained("rankproof/glm45-small", cache_dir=cache)
        context.emit("load.end")
    if look and not tokenizer.chat_template:
        context.emit("template.missed")
        return
    context.emit("prompt", ids=tokenizer.encode("hi"))
