"""The HTML page: one file that needs neither network nor script."""
