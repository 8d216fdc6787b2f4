"""The foundation: errors, files, processes, the machine, tables of text."""

from jq.base.errors import LOG, JqError, UserError, check_type
from jq.base.progress import Progress, Stages, silent
from jq.base.system.files import as_path, check_input, read_input
from jq.base.system.temporary import temporary_folder
