"""The driver: it runs the user's script, holds no slot, gives the first weights and takes the last."""
