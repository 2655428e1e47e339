"""``python -m attsvm``."""

import sys

from .cli.main import main

sys.exit(main())
