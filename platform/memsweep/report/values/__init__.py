"""What a report shows, as values that page, terminal and files have in common: tables, charts, sections."""
