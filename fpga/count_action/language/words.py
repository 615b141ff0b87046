"""Words of the language: how long a name may be, and which words are never names."""

MAX_NAME = 64
"""Characters of a name: names of ports are made of two of them."""
RESERVED = frozenset({"sum", "for", "never", "not", "valid", "data"})
"""Words that are never names: they could be taken for the word wherever a name may stand."""
