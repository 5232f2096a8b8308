"""The standard library's six names, for whoever imports `bisect` in our checkout: nothing else."""

from _bisect import bisect_left as bisect_left
from _bisect import bisect_right as bisect_right
from _bisect import insort_left as insort_left
from _bisect import insort_right as insort_right

bisect = bisect_right
insort = insort_right
