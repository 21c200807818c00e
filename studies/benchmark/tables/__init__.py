"""Tables of the page, a module each: ``write`` takes the `Report` and returns a section, or nothing to show."""
