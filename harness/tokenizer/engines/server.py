"""A running server that has `/tokenize`: llama.cpp's, vLLM, SGLang and others that answer with ids."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from harness.tokenizer.engines.adapter import Ids, Mode

SECONDS = 30
MOST = 16 << 20
"""Bytes of an answer."""


class Server:
    """What a server does with a text. It is asked for nothing but ids."""

    modes: tuple[Mode, ...] = ("special", "around")

    def __init__(self, where: str) -> None:
        # Straight to the server: a proxy would be another party to the answer.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._address = where if where.rstrip("/").endswith("/tokenize") else f"{where.rstrip('/')}/tokenize"
        self.encode("a", "special")
        self.about = f"the server at {where}"

    def encode(self, text: str, mode: Mode) -> Ids:
        """The ids of a text. Each server takes the names that it knows, and passes over the others."""
        around = mode == "around"
        asked = {"content": text, "prompt": text, "inputs": text, "add_special": around, "add_special_tokens": around}
        body = json.dumps(asked | {"parse_special": True}).encode()
        request = urllib.request.Request(self._address, data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - http or https, as `engine_of` demands
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                content = answer.read(MOST + 1)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{self._address} answers {error.code}: {error.read(200)!r}") from None
        if len(content) > MOST:
            raise ValueError(f"{self._address} answers with more than {MOST} bytes")
        return _ids(json.loads(content), self._address)

    def decode(self, ids: Ids) -> str:
        """Never: a server is asked for ids alone."""
        raise ValueError(f"{self._address} is not asked for the text of {len(ids)} ids")

    def tokens(self) -> list[str]:
        """Nothing: a server does not tell."""
        return []

    def special(self) -> list[str]:
        """Nothing: a server does not tell."""
        return []


def _ids(answer: Any, address: str) -> Ids:
    told = answer.get("tokens", answer.get("token_ids")) if isinstance(answer, dict) else answer
    if isinstance(told, list) and len(told) == 1 and isinstance(told[0], list):
        told = told[0]
    if isinstance(told, list):
        given = [one.get("id") if isinstance(one, dict) else one for one in told]
        ids = [one for one in given if isinstance(one, int) and not isinstance(one, bool)]
        if len(ids) == len(given):
            return ids
    raise ValueError(f"{address} answers with no list of ids: {str(answer)[:200]!r}")
