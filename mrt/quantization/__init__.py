"""Float to integer: the scale plan, requantization, and the builder that proves bounds while it builds."""
