"""The schema's history, one file a step. Room: migrations. A step once merged is never edited."""
