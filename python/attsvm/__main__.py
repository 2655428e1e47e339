"""``python -m attsvm``."""

import sys

from .cli import main

sys.exit(main())
