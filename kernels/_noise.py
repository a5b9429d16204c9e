"""When numbers count as equal."""

# Numbers that differ by less than this, of the larger one's size, may differ by float32's rounding
# alone. A range as narrow holds equal numbers: normalised by it, noise would rank as a signal does.
NOISE = 2e-6
