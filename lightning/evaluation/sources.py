"""Names of data sets for command help. This is a separate module, so that `--help` does not import numpy."""

NAMES_HELP = "digits, mnist:DIR, nsl-kdd:DIR or FILE.npz"
