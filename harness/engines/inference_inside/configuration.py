"""The configuration of the decoder that transformers makes of a folder's config.json.

Some models of text and images (Qwen3.5) are published with the configuration of all of it, and transformers' class for
causal language models takes the decoder of them: then the configuration is that of the text alone, as `from_pretrained`
of that class has it by itself, and what else makes a model of a configuration has not.
"""

from __future__ import annotations

from typing import Any


def of_decoder(config: Any) -> Any:
    """The configuration from which the causal language model is made; the same where it is of nothing else."""
    import transformers

    known: Any = getattr(transformers.AutoModelForCausalLM, "_model_mapping", {})
    kind = known.get(type(config), None)
    text = getattr(config, "sub_configs", {}).get("text_config")
    return config.get_text_config() if text is not None and getattr(kind, "config_class", None) is text else config
