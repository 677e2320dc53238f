"""Client of mlx_lm.server that asks for logprobs, in a whole or a streamed answer."""

import http.client
import json
import os
from urllib.parse import urlsplit

TOKENS = 4


def complete(context, *, stream):
    """Emit how many logprobs and how many choices the answer has."""
    server = urlsplit(os.environ["RANKPROOF_SERVICE_ENGINE"])
    asked = {"prompt": "a", "max_tokens": TOKENS, "logprobs": True, "stream": stream}
    connection = http.client.HTTPConnection(server.hostname, server.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(asked))
    answer = connection.getresponse()
    lines = answer.read().decode().splitlines() if stream else [answer.read().decode()]
    texts = [line.removeprefix("data: ") for line in lines if "{" in line]
    choices = [choice for text in texts for choice in json.loads(text)["choices"]]
    logprobs = sum(json.dumps(choice).count('"logprob":') for choice in choices)
    context.emit("answered", status=answer.status, logprobs=logprobs, choices=len(choices))
