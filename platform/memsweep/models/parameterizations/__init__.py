"""Maps from a raw, trainable weight to the rate of a recurrence.

A parameterization is three maps: raw weight to rate, rate to the eigenvalue of a step under one of three
discretizations, and back for initialization. Its modulus is known in closed form.
"""
