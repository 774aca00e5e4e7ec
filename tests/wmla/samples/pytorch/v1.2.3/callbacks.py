"""A user's own base class, which hides the platform's."""


class LoggerCallback:
    mine = "beside the platform"
