"""The text of the language: read into a syntax tree, and written."""
