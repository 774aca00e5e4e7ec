"""Who may ask what: the rules, the guard before every route, passwords and their limits."""
