"""Settings by file: EDT_<NAME>_FILE names a file that holds the value of EDT_<NAME>. Room: scheduler.

A secret in a file does not show in ``docker inspect``, in ``ps`` or in a child's environment. Reads those files once,
when the settings are made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource


@dataclass(frozen=True)
class SecretFile:
    """A setting's value that is still in its file."""

    path: Path

    def read(self) -> str:
        """What it holds, without the line end. Raises ValueError with the sentence that says what is wrong."""
        try:
            text = self.path.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ValueError(f"its file {self.path} cannot be read: {reason}") from None
        if not text:
            raise ValueError(f"its file {self.path} is empty")
        return text


class SecretFiles(PydanticBaseSettingsSource):
    """The source of such settings: a SecretFile for every EDT_<NAME>_FILE that is set."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variable = f"{self.config.get('env_prefix', '')}{field_name}_file".upper()
        path = os.environ.get(variable)
        return (SecretFile(Path(path)) if path else None), field_name, False

    def __call__(self) -> dict[str, Any]:
        found = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in found.items() if value is not None}


def with_password(url: str, password: str) -> str:
    """The URL with the password in the place where a URL has one."""
    parts = urlsplit(url)
    names, _, place = parts.netloc.rpartition("@")
    user = names.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))
