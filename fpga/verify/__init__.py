"""Verification of the files of a built folder against the source text in it."""
