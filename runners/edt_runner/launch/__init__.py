"""How a user's call begins: as driver, as engine, or with a supervisor of its own on this machine."""
