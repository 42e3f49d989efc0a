"""The results of a study, on a local disk or in an S3 bucket.

A record is the commit point of a result and holds the hash of each of its tables. The store decides what is finished;
the journal explains what waited, ran and failed, and any of its lines may be lost. The lease needs no locks: a driver
writes a claim, lists, and withdraws when another is there.
"""
