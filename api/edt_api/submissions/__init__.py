"""From the body of a submission to a job: its turn, its upload, its archive, its args."""
