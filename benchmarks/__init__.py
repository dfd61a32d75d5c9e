"""Speed, measured against a plain loop and against the machine's own matmul ceiling."""
