"""Which operators are computed together, and over whose memory a result is written."""
