"""A provisioner's errors.

ProvisionerError
├── BadSetting          a setting cannot be used
├── ApiUnreachable      the API does not answer; try again later
└── ApiRefused          the API refuses a request
    └── PoolUnknown     the API does not know the pool; register again
"""

from __future__ import annotations


class ProvisionerError(Exception):
    """Base class: the provisioner cannot do something."""


class BadSetting(ProvisionerError):
    """A setting cannot be used. The message names the setting, its value, and what it takes."""


class ApiUnreachable(ProvisionerError):
    """The API does not answer, or its answer cannot be read."""


class ApiRefused(ProvisionerError):
    """The API refuses a request. The message has the API's reason."""


class PoolUnknown(ApiRefused):
    """The API does not know the pool, because it was removed."""
