"""How the processes of a job talk: messages, the channel they travel on, and the page of engine statuses."""
