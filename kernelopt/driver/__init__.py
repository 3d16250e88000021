"""From a stated problem to an answer that is certified: options, factors, attempts, and the check afterwards."""
