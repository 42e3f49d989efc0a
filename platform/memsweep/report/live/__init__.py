"""The page of a study that runs: the report before it is complete.

``process`` is the end in the process that runs the study. It opens an address on loopback and sends one line of JSON
for each change of the progress. Everything else happens in a process of its own, which starts when somebody who knows
the address first looks at the page (``door``): it reads the study's folder (``build``), serves the page (``server``),
and writes it to the folder of a study on a cluster. So a reader costs the sweep nothing but a share of a core, which is
bounded: after a page was built, the next one waits 20 times as long as that took.
"""
