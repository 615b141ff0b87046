"""Names of data sets for command help, apart from `datasets` so that `--help` does not import numpy."""

NAMES = "digits, mnist:DIR, nsl-kdd:DIR or FILE.npz"
