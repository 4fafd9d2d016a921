"""What a site allows studies on its data: a policy that its party enforces, and a budget over all studies.

`policy` says what is allowed, `budget` keeps what was spent, and `guard` has a party obey both.
"""
