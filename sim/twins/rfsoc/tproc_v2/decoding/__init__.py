"""Decoding: words of 72 bits to rows of columns and cells, with the hazards of each."""
