"""The page of a report: one file that needs nothing else, and that can be read without scripts.

The answer comes first; the kind of the study decides what it says (``answer``). Its figure is drawn in the browser by
Observable Plot and d3 (``vendor``) from data within the page (``data``). Where scripts are off, a picture by matplotlib
and the tables stand in its place. The page's policy names the hashes of its scripts: nothing else runs.
"""
