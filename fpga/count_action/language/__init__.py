"""Source text of the language: parser, syntax tree and `unparse`."""
