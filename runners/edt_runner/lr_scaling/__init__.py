"""How the learning rate follows the batch: rules, statistics of gradients, traces."""
