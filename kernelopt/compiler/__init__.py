"""rules → canonical form → cone data → separable cut; reductions by factors, and the way back to θ; explain."""
