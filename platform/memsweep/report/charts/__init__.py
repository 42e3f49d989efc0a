"""Every chart of a report as a value, made once: the page draws it, and so do the figure files."""
