"""Where the parts of the repository lie."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
CSRC = ROOT / "csrc"
GOLDEN = sorted((TESTS / "golden").glob("local_*.npz"))
