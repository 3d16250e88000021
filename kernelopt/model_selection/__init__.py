"""What a fit says of data that it has not seen, and answers along a parameter."""
