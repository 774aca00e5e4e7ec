"""The messages that the processes of a job exchange, and the channel that sends and receives them."""
