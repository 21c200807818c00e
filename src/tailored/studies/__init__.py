"""Studies: a configuration in, a tidy table out, a page from the table."""
