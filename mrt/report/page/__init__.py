"""A report as a page that stands alone, and as text for a pull request.

Python says all that is said, in words and rounded numbers; the script of the page draws and lets one choose. Names come
from foreign files: templates escape them, and the page allows no script but its own.
"""

from mrt.report.page.files import page_files, saved_report
from mrt.report.page.markdown import MARKDOWN_FILE
from mrt.report.page.page import HTML_FILE

__all__ = ["HTML_FILE", "MARKDOWN_FILE", "page_files", "saved_report"]
