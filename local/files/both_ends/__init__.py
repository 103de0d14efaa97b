"""The two halves of a copy. Each runs on the laptop in a thread of ccb, and on the host as a program sent there.

So these modules are standard library only, for Python 3.9, and import nothing of ccb but each other. Each half
distrusts the other one: what comes in is limited, and names lead nowhere but below the target.
"""
