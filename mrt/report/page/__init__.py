"""A report as a page that stands alone, and as text for a pull request.

Python says all that is said, in words and rounded numbers; the script of the page draws and lets one choose. Names come
from foreign files: templates escape them, and the page allows no script but its own.
"""
