"""Access to the API: the rules, the guard that runs before every route, and passwords with their limits."""
