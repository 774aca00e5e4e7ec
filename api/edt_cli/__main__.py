"""``python -m edt_cli`` runs ``edt``."""

from __future__ import annotations

from edt_cli.main import main

if __name__ == "__main__":
    main()
