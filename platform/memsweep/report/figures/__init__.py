"""The figures of a report, as lists of panels."""
