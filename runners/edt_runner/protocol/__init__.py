"""How the processes of a job talk: messages, and the channel they travel on."""
