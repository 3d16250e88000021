"""rules → form → representer (substitute, and invert) → explain."""
