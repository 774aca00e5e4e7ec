"""The administrator's password of every platform that a test starts."""

from __future__ import annotations

PASSWORD = "a password for tests"
