"""From evidence to answers and their figures: readers, judge, cache, and the run over a set."""
