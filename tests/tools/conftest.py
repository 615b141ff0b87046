import sys
from pathlib import Path

# The installer is no package of ours: it is run from the top of a checkout.
sys.path.insert(0, str(Path(__file__).parents[2]))
