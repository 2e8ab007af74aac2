"""One algorithm per file: each turns a problem into a stream of points."""
