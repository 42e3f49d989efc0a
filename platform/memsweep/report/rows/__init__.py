"""The tables of a report. Page, terminal and CSV files render the same rows."""
