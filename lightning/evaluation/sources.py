"""Data by name, as commands take it; apart from `datasets`, so that help on a command loads no numpy."""

NAMES = "digits, mnist:DIR, nsl-kdd:DIR or FILE.npz"
