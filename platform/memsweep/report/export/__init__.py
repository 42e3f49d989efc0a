"""The report as files, put in place of the old one at once."""
