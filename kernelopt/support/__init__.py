"""What all rooms share, and what knows nothing of kernels: arithmetic, time limits, threads, tables, pictures."""
