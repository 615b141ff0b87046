"""Revisions of the schema, each from the one before it."""
