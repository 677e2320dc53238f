"""The comparator of tokenizers."""
