"""Random labs of the tests of discovery are found by their bare name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
