"""From a stated problem to a certified answer: options, factors, attempts, and verification."""
