"""What a step is, as pure arithmetic: its samples, the micro-batches of each rank, and the order of their sum."""
