"""What several rooms' tests share: real processes, started and certain to be gone at the end."""
