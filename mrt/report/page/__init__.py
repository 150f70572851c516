"""A report as a page that stands alone, and as text for a pull request.

Python says all that is said, in words and rounded numbers; the script of the page draws and lets one choose. Names come
from foreign files: templates escape them, and the page allows no script but its own.
"""

from mrt.report.facts import REPORT_FILE
from mrt.report.page.compare import COMPARE_HTML, COMPARE_MARKDOWN
from mrt.report.page.files import page_files, saved_report
from mrt.report.page.markdown import MARKDOWN_FILE
from mrt.report.page.page import HTML_FILE

__all__ = ["HTML_FILE", "REPORT_FILES", "page_files", "saved_report"]

REPORT_FILES = (REPORT_FILE, HTML_FILE, MARKDOWN_FILE, COMPARE_HTML, COMPARE_MARKDOWN)
"""All files that tell of a run, which another result makes untrue."""
