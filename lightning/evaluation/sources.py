"""Data by name, as commands take it."""

NAMES = "digits, mnist:DIR, nsl-kdd:DIR or FILE.npz"
