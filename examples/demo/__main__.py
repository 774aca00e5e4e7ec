"""``python examples/demo``, or ``make demo``. No question is asked and no terminal needed; exit statuses are
in ``edt_demo.exits``."""

from __future__ import annotations

import sys

from edt_demo.main import main

if __name__ == "__main__":
    sys.exit(main())
